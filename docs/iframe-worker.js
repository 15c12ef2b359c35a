/* Workers in hidden frames. Browsers start none for pages that are opened from disk, and the site's search is one.
 *
 * The theme looks for `IFrameWorker`, and loads such a script from the network unless mkdocs.yml names one.
 */

class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    const load = (address) =>
      new Promise((resolve, reject) => {
        const script = frame.contentDocument.createElement("script");
        script.src = new URL(address, location.href).href;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`${script.src} cannot be loaded`));
        frame.contentDocument.body.append(script);
      });
    this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.inside.importScripts = async (...addresses) => {
      for (const address of addresses) await load(address);
    };
    this.loaded = load(url);
  }

  postMessage(data) {
    this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}

if (location.protocol === "file:") window.Worker = window.IFrameWorker = IFrameWorker;
