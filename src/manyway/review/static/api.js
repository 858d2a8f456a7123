// Talking to the server: news arrive by a request that waits, actions leave one after the other.

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, { ...options, credentials: "same-origin" });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.error), { refused: true, status: response.status });
  return answer;
}

export const load = () => ask("/api/review");
export const near = (row) => ask(`/api/near/${row}`);
export const planned = () => ask("/api/check");
export const history = () => ask("/api/history");
export const likeness = (rows) => ask("/api/likeness", { rows });
export const write = (name) => ask("/api/export", { name });
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const CLOSED = "This page has lost its key. Open the address that manyway review has printed.";

/** Ask for news for ever; `take` gets them, `problem` gets a sentence or "". `command` starts the server again. */
export async function follow(id, version, command, take, problem) {
  let since = version;
  for (;;) {
    try {
      const changes = await ask(`/api/changes?since=${since}&id=${id}`);
      problem("");
      since = changes.version;
      if (take(changes) === "stop") return;
    } catch (error) {
      problem(error.status === 403 ? CLOSED : `The server is stopped. Start it again with: ${command}`);
      await pause(1000);
    }
  }
}

/** Sends actions in order. One that got no answer is sent again with the same key, so that it is done once. */
export class Actions {
  #last = Promise.resolve();
  #waiting = 0;

  /** `items`: which review this is; `said` gets what was done, `problem` a sentence, `saving` whether anything is not saved. */
  constructor(items, said, problem, saving) {
    Object.assign(this, { items, said, problem, saving });
  }

  /** Send an action; the promise has the items that it was about, and the version that shows it, once it is saved. */
  send(action) {
    const keyed = { ...action, items: this.items, key: crypto.randomUUID() };
    const sent = this.unsaved(this.#last.then(() => this.#deliver(keyed)));
    this.#last = sent;
    return sent;
  }

  /** Something is not saved until the promise is kept: an action, or keys that wait for the answer to another. */
  unsaved(promise) {
    this.#waiting += 1;
    this.saving(true);
    return promise.finally(() => {
      this.#waiting -= 1;
      this.saving(this.#waiting > 0);
    });
  }

  async #deliver(action) {
    for (;;) {
      try {
        const answer = await ask("/api/actions", action);
        this.said(answer.said);
        this.problem("");
        return answer;
      } catch (error) {
        if (error.refused && error.status !== 403) {
          this.said(error.message, true);
          return { rows: [], version: 0 };
        }
        this.problem("Not saved yet: keep this page open."); // what is wrong is found by `follow` as well
        await pause(1000);
      }
    }
  }
}
