// Does in Chromium what a test asks for. Input: JSON with `browser`, its program, and `visits`, each with the `url` of a
// page and `acts`, done in order. Prints for each visit what its acts gave, and what the page complained about or asked
// the network for.
const fs = require("fs");
const puppeteer = require("puppeteer-core");

const acts = {
  eval: (page, expression) => page.evaluate(expression),
  hover: (page, selector) => page.hover(selector),
  press: (page, key) => page.keyboard.press(key),
  script: (page, path) => page.addScriptTag({ content: fs.readFileSync(path, "utf8") }),
  size: (page, [width, height]) => page.setViewport({ width, height }),
  scheme: (page, value) => page.emulateMediaFeatures([{ name: "prefers-color-scheme", value }]),
  scripts: (page, enabled) => page.setJavaScriptEnabled(enabled),
  reload: (page) => page.reload(),
  picture: (page, path) => page.screenshot({ path }),
};

async function visit(browser, { url, acts: wanted }) {
  const page = await browser.newPage();
  const [problems, requests, given] = [[], [], []];
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => requests.push(request.url()));
  await page.goto(url, { waitUntil: "load" });
  for (const [name, argument] of wanted) {
    const result = await acts[name](page, argument);
    given.push(name === "eval" ? result : null);
  }
  await page.close();
  return { given, problems, requests };
}

async function main() {
  const { browser: executablePath, visits } = JSON.parse(fs.readFileSync(0, "utf8"));
  const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    const seen = [];
    for (const each of visits) seen.push(await visit(browser, each));
    process.stdout.write(JSON.stringify(seen));
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  process.stderr.write(`${error}\n`);
  process.exit(1);
});
