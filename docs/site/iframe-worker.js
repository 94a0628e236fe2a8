// The search runs in a worker. Browsers start no worker from a disk, so that there its script runs in
// a hidden frame of the page. The theme looks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = "<!doctype html><title>Search</title>"
      this.inner = new Promise((resolve) => {
        this.frame.addEventListener("load", () => resolve(this.frame.contentWindow), { once: true })
      }).then(async (inner) => {
        inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
        inner.importScripts = async (...addresses) => {
          for (const each of addresses) await loaded(inner.document, each)
        }
        await inner.importScripts(address)
        return inner
      })
      document.body.append(this.frame)
    }

    async postMessage(data) {
      const inner = await this.inner
      inner.dispatchEvent(new inner.MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }

  function loaded(page, address) {
    return new Promise((resolve, reject) => {
      const script = page.createElement("script")
      script.src = address
      script.onload = resolve
      script.onerror = reject
      page.body.append(script)
    })
  }
}
