// The search of the site runs in a worker, which browsers refuse on pages that are opened as files.
// There, this class runs the worker's script in a hidden frame instead.
// The site's generator looks for a script of this name; without it, pages load one from the network.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<body></body>";
      this.frame.onload = () => this.load(new URL(url, document.baseURI).href);
      document.documentElement.append(this.frame);
    }

    load(url) {
      const scope = this.frame.contentWindow;
      scope.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
      const script = scope.document.createElement("script");
      script.src = url;
      script.onerror = (event) => this.onerror?.(event);
      script.onload = () => {
        this.scope = scope;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      scope.document.body.append(script);
    }

    postMessage(data) {
      if (this.scope) {
        setTimeout(() => this.scope?.onmessage?.({ data: structuredClone(data) }));
      } else {
        this.waiting.push(data);
      }
    }

    terminate() {
      this.scope = null;
      this.frame.remove();
    }
  };
}
