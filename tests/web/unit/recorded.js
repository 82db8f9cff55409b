// The unified events of real CLIs, as the goldens hold them.

import { readdirSync, readFileSync } from "node:fs";

const GOLDENS = new URL("../../goldens/unified/", import.meta.url);

/** All recorded sessions: [name, events]. */
export function recordings() {
  return readdirSync(GOLDENS).flatMap((agent) =>
    readdirSync(new URL(`${agent}/`, GOLDENS)).map((file) => {
      const name = `${agent}/${file.replace(/\.jsonl$/, "")}`;
      return [name, recording(name)];
    }),
  );
}

export function recording(name) {
  const lines = readFileSync(new URL(`${name}.jsonl`, GOLDENS), "utf8")
    .trim()
    .split("\n");
  return lines.map((line) => JSON.parse(line));
}
