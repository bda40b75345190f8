// Colours files by a TextMate grammar as VS Code does. Arguments: the grammar, then files. Prints for each file, in JSON,
// its lines, each a list of [start, end, innermost scope].
const fs = require("fs");
const oniguruma = require("vscode-oniguruma");
const textmate = require("vscode-textmate");

async function main([grammar, ...files]) {
  await oniguruma.loadWASM(fs.readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm")).buffer);
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => textmate.parseRawGrammar(fs.readFileSync(grammar, "utf8"), grammar),
  });
  const known = await registry.loadGrammar("source.policy");
  const told = files.map((file) => {
    let stack = textmate.INITIAL;
    return fs.readFileSync(file, "utf8").split(/\r?\n/).map((line) => {
      const found = known.tokenizeLine(line, stack);
      stack = found.ruleStack;
      return found.tokens.map((token) => [token.startIndex, token.endIndex, token.scopes.at(-1)]);
    });
  });
  process.stdout.write(JSON.stringify(told));
}

main(process.argv.slice(2));
