// Imports a module and prints one JSON object, as cold_start.py does: process.argv is the module and its node_modules.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [entry, modules] = process.argv.slice(2);
await import(pathToFileURL(entry));
const { user, system } = process.cpuUsage();

const found = readdirSync(modules, { recursive: true, withFileTypes: true }).filter((file) => file.isFile())
  .map((file) => join(file.parentPath ?? file.path, file.name));
const bytes = found.reduce((sum, file) => sum + statSync(file).size, 0);
const names = found.filter((file) => /node_modules\/(@[^/]+\/)?[^/]+\/package\.json$/.test(file))
  .map((file) => JSON.parse(readFileSync(file, "utf8")).name);
console.log(JSON.stringify({ seconds: (user + system) / 1e6, distributions: new Set(names).size, megabytes: bytes / 1e6 }));
