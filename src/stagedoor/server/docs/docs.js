// Reads openapi.json, lists every operation, and lets one try it. Texts only ever go in as text.

const make = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

const token = document.getElementById("token");

/** An example of what a schema takes: required parts only, so that it works as it stands. */
function example(schema, all) {
  if (schema.$ref) return example(all[schema.$ref.split("/").pop()], all);
  if (schema.anyOf) return example(schema.anyOf[0], all);
  if (schema.enum) return schema.enum[0];
  if ("const" in schema) return schema.const;
  if (schema.type === "object") {
    const required = schema.required ?? [];
    const names = required.length ? required : Object.keys(schema.properties ?? {}).slice(0, 2);
    return Object.fromEntries(names.map((name) => [name, example(schema.properties[name], all)]));
  }
  return { string: "Say hello", integer: 1, number: 1, boolean: true, array: [] }[schema.type] ?? null;
}

function field(parameter) {
  const { schema } = parameter;
  const hint = schema.enum?.join(" | ") ?? ("default" in schema ? String(schema.default) : schema.type ?? "");
  const attributes = { name: parameter.name, placeholder: hint, spellcheck: "false", autocomplete: "off" };
  if (parameter.required) attributes.required = "";
  const label = make("span", {}, parameter.name + (parameter.required ? " *" : ""));
  return make("label", { class: "field" }, label, make("input", attributes));
}

function buildRequest(method, path, operation, form) {
  const values = new FormData(form);
  const query = new URLSearchParams();
  const headers = {};
  let target = path;
  for (const { name, in: part } of operation.parameters) {
    const value = values.get(name);
    if (!value) continue;
    if (part === "path") target = target.replace(`{${name}}`, encodeURIComponent(value));
    else if (part === "query") query.append(name, value);
    else headers[name] = value;
  }
  const body = values.get("body") || undefined;
  if (body) headers["Content-Type"] = "application/json";
  return { method, headers, body, url: target + (query.size ? `?${query}` : "") };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function asCurl({ method, headers, body, url }) {
  const parts = ["curl"];
  if (method !== "GET") parts.push("-X", method);
  parts.push("-H", '"Authorization: Bearer $TOKEN"');
  for (const [name, value] of Object.entries(headers)) parts.push("-H", quoted(`${name}: ${value}`));
  if (body) parts.push("-d", quoted(body));
  return [...parts, quoted(location.origin + url)].join(" ");
}

async function sendRequest(request) {
  const headers = { ...request.headers };
  if (token.value) headers.Authorization = `Bearer ${token.value.trim()}`;
  const answer = await fetch(request.url, { method: request.method, headers, body: request.body, cache: "no-store" });
  const text = await answer.text();
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // not JSON: as it is
  }
  return `${answer.status} ${answer.statusText}\n\n${shown}`;
}

function card(method, path, operation, all) {
  const form = make("form", {}, make("p", { class: "quiet" }, operation.description ?? ""));
  form.append(...operation.parameters.map(field));
  const content = operation.requestBody?.content["application/json"];
  if (content) {
    const body = make("textarea", { name: "body", "aria-label": "body", spellcheck: "false" });
    body.value = JSON.stringify(example(content.schema, all), null, 2);
    form.append(body);
  }
  const command = make("pre", { hidden: "" });
  const result = make("pre", { hidden: "", "aria-live": "polite" });
  form.append(make("div", {}, make("button", {}, "Try it")), command, result);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const request = buildRequest(method.toUpperCase(), path, operation, form);
    command.hidden = result.hidden = false;
    command.textContent = asCurl(request);
    result.textContent = "…";
    result.textContent = await sendRequest(request).catch((fault) => `The server could not be reached: ${fault.message}`);
  });
  const title = make(
    "summary", {}, make("span", { class: `method ${method}` }, method.toUpperCase()), make("code", {}, path),
    make("span", { class: "quiet" }, operation.summary),
  );
  return make("details", { id: operation.operationId }, title, form);
}

const described = await (await fetch("/openapi.json")).json();
document.getElementById("about").textContent = described.info.description;
const list = document.getElementById("operations");
for (const { name } of described.tags) {
  list.append(make("h2", {}, name));
  for (const [path, methods] of Object.entries(described.paths))
    for (const [method, operation] of Object.entries(methods))
      if (operation.tags.includes(name)) list.append(card(method, path, operation, described.components.schemas));
}
