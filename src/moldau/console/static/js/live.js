// Live updates by Server-Sent Events: one stream a page, only while the page can be seen.

/**
 * Open a stream. `on` maps event names to functions of the data; `status` hears "on", "off" and "paused".
 * The stream ends with the signal. A `problem` ends it too, and goes to `failed`. `refused` hears that the server did
 * not open it: it is tried again, unless the page is left by then.
 */
export function live(url, { on, signal, status = () => {}, failed = () => {}, refused = async () => {} }) {
  let source = null;
  let ended = false;

  function open() {
    if (source || ended || document.hidden) return;
    source = new EventSource(url);
    source.addEventListener("open", () => status("on"));
    source.addEventListener("error", () => {
      status("off");
      if (source?.readyState === EventSource.CLOSED && !ended) { // refused: the browser does not try again by itself
        close();
        refused().finally(() => setTimeout(open, 3000));
      }
    });
    for (const [name, action] of Object.entries(on)) {
      source.addEventListener(name, (event) => {
        status("on");
        action(JSON.parse(event.data));
      });
    }
    source.addEventListener("problem", (event) => {
      end();
      status("off");
      failed(JSON.parse(event.data).error);
    });
  }

  function close() {
    source?.close();
    source = null;
  }

  function end() {
    ended = true;
    close();
    document.removeEventListener("visibilitychange", look);
  }

  function look() {
    if (document.hidden) {
      close();
      status("paused");
    } else open();
  }

  document.addEventListener("visibilitychange", look);
  signal.addEventListener("abort", end);
  if (!signal.aborted) open();
  return { close: end };
}
