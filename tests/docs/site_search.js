// The search of a built site, as a browser runs it: the page's script, and the theme's own worker. Queries are a JSON list on stdin; the answer
// maps each to the addresses that it finds, best first. Usage: node site_search.js SITE [LANGUAGE]
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const site = process.argv[2];
const folder = path.join(site, "assets", "javascripts", "workers");
const script = fs.readdirSync(folder).find((name) => /^search\..*\.js$/.test(name));
const SETUP = 0;
const QUERY = 2;

let receive;
let answer;
const inside = {
  addEventListener: (_, listener) => (receive = listener),
  postMessage: (message) => answer(message),
  console,
};
inside.self = inside;
vm.runInContext(fs.readFileSync(path.join(folder, script), "utf8"), vm.createContext(inside));

class Worker {
  postMessage(message) {
    receive({ data: message });
  }
}
vm.runInContext(fs.readFileSync(path.join(site, "assets", "search.js"), "utf8"), vm.createContext({ Worker }));

const worker = new Worker();
const ask = (type, data) =>
  new Promise((resolve) => {
    answer = resolve;
    worker.postMessage({ type, data });
  });

(async () => {
  const { config, docs } = JSON.parse(fs.readFileSync(path.join(site, process.argv[3] ?? "", "search", "search_index.json"), "utf8"));
  await ask(SETUP, { config, docs, options: { suggest: false } });
  const found = {};
  for (const query of JSON.parse(fs.readFileSync(0, "utf8"))) {
    const { data } = await ask(QUERY, query);
    found[query] = data.items.map((page) => page[0].location);
  }
  console.log(JSON.stringify(found));
})();
