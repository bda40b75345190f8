// Starts `policy lsp` and leaves the rest to it.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function activate(context) {
  const settings = vscode.workspace.getConfiguration("policy");
  const [command, ...args] = settings.get("command");
  const root = settings.get("root");
  const server = { command, args: root ? [...args, "--root", root] : args };
  client = new LanguageClient(
    "policy",
    "Policy",
    { run: server, debug: server },
    {
      documentSelector: [{ language: "policy" }],
      synchronize: {
        fileEvents: vscode.workspace.createFileSystemWatcher("**/{*.policy,policy.toml,pyproject.toml}"),
      },
    },
  );
  context.subscriptions.push(client);
  return client.start();
}

function deactivate() {
  return client ? client.stop() : undefined;
}

module.exports = { activate, deactivate };
