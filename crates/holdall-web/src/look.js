// A message of a topic: a tree of its fields, and its picture. `source.path(kind, query)` is where messages and pictures are; `source.isLive` shows the
// newest one as it comes. `on.moved(ns)` is called with the time of what is shown, `on.plot(text, unit)` for a field.
const UNITS = { "sensor_msgs/msg/Imu": { linear_acceleration: "m/s²", angular_velocity: "rad/s" }, "sensor_msgs/msg/NavSatFix": { latitude: "°", longitude: "°", altitude: "m" }, "geometry_msgs/msg/Twist": { linear: "m/s", angular: "rad/s" }, "geometry_msgs/msg/Accel": { linear: "m/s²", angular: "rad/s²" }, "geometry_msgs/msg/Wrench": { force: "N", torque: "N·m" }, "geometry_msgs/msg/Pose": { position: "m" }, "geometry_msgs/msg/Transform": { translation: "m" }, "sensor_msgs/msg/LaserScan": { ranges: "m", range_min: "m", range_max: "m", angle_min: "rad", angle_max: "rad", angle_increment: "rad", time_increment: "s", scan_time: "s" }, "sensor_msgs/msg/Range": { range: "m", min_range: "m", max_range: "m", field_of_view: "rad" }, "sensor_msgs/msg/Temperature": { temperature: "°C" }, "sensor_msgs/msg/FluidPressure": { fluid_pressure: "Pa" }, "sensor_msgs/msg/MagneticField": { magnetic_field: "T" }, "sensor_msgs/msg/BatteryState": { voltage: "V", current: "A", charge: "Ah", capacity: "Ah", design_capacity: "Ah", temperature: "°C", cell_voltage: "V", cell_temperature: "°C" }, "nav_msgs/msg/MapMetaData": { resolution: "m" } };
// A picture of the server. Video is decoded here where the browser can, else by the server.
const notHere = new Set();
async function pictureOf(path, options) {
  for (let byServer = false;; byServer = true) {
    const topic = path.match(/(?:bag|topic)=[^&]*/g).join(), isOurs = "VideoDecoder" in globalThis && !byServer && !notHere.has(topic), answer = await fetch(path + (isOurs ? "&video=1" : ""));
    if (!answer.ok) return { said: String((await answer.json()).error) };
    const about = JSON.parse(decodeURIComponent(answer.headers.get("X-Holdall-About")));
    if (about.kind !== "video") return { about, image: await createImageBitmap(await answer.blob(), options) };
    try { const frame = await lastFrame(about.codec, new DataView(await answer.arrayBuffer())); try { return { about, image: await createImageBitmap(frame, options) }; } finally { frame.close(); } } catch (e) { if (e.isUnsupported) notHere.add(topic); }
  }
}
async function lastFrame(codec, data) {
  const settings = { codec, optimizeForLatency: true }; if (!(await VideoDecoder.isConfigSupported(settings)).supported) throw Object.assign(new Error(codec), { isUnsupported: true });
  let frame = null, failure = null, number = 0, at = 0;
  const decoder = new VideoDecoder({ output: one => { if (!frame || one.timestamp > frame.timestamp) { if (frame) frame.close(); frame = one; } else one.close(); }, error: e => { failure = e; } });
  decoder.configure(settings);
  try {
    while (at < data.byteLength) { const long = data.getUint32(at); decoder.decode(new EncodedVideoChunk({ type: number ? "delta" : "key", timestamp: number++, data: new Uint8Array(data.buffer, at + 4, long) })); at += 4 + long; }
    await decoder.flush(); if (failure || !frame || frame.timestamp !== number - 1) throw failure || new Error("no picture");
    return frame;
  } catch (e) { if (frame) frame.close(); throw e; } finally { if (decoder.state !== "closed") decoder.close(); }
}
function makeViewer(box, source, on) {
  const parts = {}, part = (key, tag, name) => { parts[key] = make(tag, name); return parts[key]; };
  let topic = null, at = null, changed = new Set(), list = null, range = null, wish = null, busy = false, timer = 0, held = false, seen = 0, going = 0;
  const head = make("div", "bar-row"), steps = make("nav", "steps"), find = make("form", "find"), where = make("input");
  head.append(part("title", "h2")); steps.setAttribute("aria-label", "messages");
  const step = (label, name, act) => { const b = button(label, act); b.setAttribute("aria-label", name); steps.append(b); return b; };
  const search = make("button", "", "Find next"), back = make("button", "", "Find previous");
  if (source.isLive) {
    const hold = button("Hold", () => { held = !held; put(hold, held ? "Follow" : "Hold"); }); steps.append(hold);
  } else {
    step("|◀", "first message", () => go({ step: "at", at: "-9000000000000000000" })); step("◀", "previous message", () => go({ step: "previous" }));
    step("▶", "next message", () => go({ step: "next" })); step("▶|", "last message", () => go({ step: "at", at: "9000000000000000000" }));
    where.type = "search"; where.placeholder = "linear_acceleration.z > 12"; where.setAttribute("aria-label", "search by an expression of fields"); search.type = "submit"; back.type = "button";
    find.append(where, search, back); find.addEventListener("submit", e => { e.preventDefault(); go({ step: "next", where: where.value }); });
    back.addEventListener("click", () => go({ step: "previous", where: where.value }));
  }
  box.append(head, steps, find, part("when", "div", "when"), part("picture", "div", "picture"), part("tree", "div", "tree"));
  parts.when.setAttribute("role", "status"); parts.when.id = "when";
  const canvas = make("canvas"), legend = make("div", "scale"), low = make("input"), high = make("input"), slider = make("input"), fit = button("Fit", () => { range = null; picture(); });
  canvas.setAttribute("role", "img"); parts.picture.append(canvas, legend); parts.picture.hidden = true;
  for (const [input, name] of [[low, "lowest depth in millimetres"], [high, "highest depth in millimetres"]]) { input.inputMode = "decimal"; input.size = 7; input.setAttribute("aria-label", name); input.addEventListener("change", () => { const ends = [low, high].map(i => Number(i.value)); if (ends.every(isFinite) && ends[0] < ends[1]) { range = ends; picture(); } }); }
  if (!source.isLive) {
    Object.assign(slider, { type: "range", min: 0, max: 10000, id: "scrub" }); slider.setAttribute("aria-label", "time in the bag"); parts.picture.append(slider);
    const timeOf = () => source.start + BigInt(Math.round(Number(slider.value) / 10000 * source.length_ms * 1000)) * 1000n;
    // Fewer pixels are faster; the picture at rest is whole.
    slider.addEventListener("input", () => picture({ step: "at", at: timeOf(), side: 640, quick: 1 })); slider.addEventListener("change", () => go({ step: "at", at: timeOf() }));
  }

  const query = more => Object.entries(more).filter(([, v]) => v !== undefined && v !== null && v !== "").map(([k, v]) => `${k}=${encodeURIComponent(v)}`).join("&");
  const here = () => ({ topic: topic.name, step: "this", at: at && at.time_ns, nth: at && at.nth });
  // What a place of a search is in words.
  async function go(way) {
    if (!topic) return;
    const mine = ++going; let next = { ...here(), ...way };
    if (!at && next.step !== "at") next = { ...next, step: "at", at: "-9000000000000000000" };
    for (let round = 0; ; round++) {
      let reply; try { reply = await get(source.path("message", query(next))); } catch { if (mine === going) refuse("holdall did not answer."); return; }
      if (mine !== going || !reply.ok) return;
      refuse("");
      if (reply.found) { at = reply.found; list = way.open ? { open: way.open, from: way.from } : null; show(); return; }
      if (!reply.until_ns) { put(parts.when, way.where ? `No further message fulfils ${way.where}.` : next.step === "at" ? "This topic has no message." : "This is the " + (next.step === "next" ? "last" : "first") + " message."); return; }
      put(parts.when, `Searching … ${dateOf(reply.until_ns)}`); next = { ...next, at: reply.until_ns, nth: reply.until_nth };
    }
  }
  const offset = ns => { const s = Number(BigInt(ns) - source.start) / 1e9; return (s < 0 ? "−" : "+") + Math.abs(s).toFixed(3) + " s"; };
  function show() {
    const { message } = at;
    put(parts.when, [dateOf(at.time_ns), source.isLive ? "" : offset(at.time_ns), bytes(at.bytes), at.publisher ? "from " + at.publisher : "", at.sequence ? "number " + at.sequence : ""].filter(Boolean).join(" · "));
    parts.tree.replaceChildren();
    if (message.undecoded) parts.tree.append(make("p", "", "Not decoded: " + message.undecoded), make("pre", "", message.text));
    else { const ul = make("ul"); for (const field of message.fields) ul.append(node(field, "", message.type, null)); parts.tree.append(ul); if (message.is_cut) parts.tree.append(make("p", "soft", "This message is too long to be shown whole.")); }
    parts.picture.hidden = !at.is_picture; if (at.is_picture) picture();
    if (!source.isLive) slider.value = source.length_ms ? Number((BigInt(at.time_ns) - source.start) / 1000n) / 1000 / source.length_ms * 10000 : 0;
    on.moved(at.time_ns);
  }
  const spanOf = ns => { const n = Number(ns) / 1e9; return n !== 0 && Math.abs(n) < 1e-3 ? (n * 1e6).toFixed(3) + " µs" : Math.abs(n) < 1 ? (n * 1e3).toFixed(3) + " ms" : n.toFixed(3) + " s"; };
  // A field. `parent` is the type that it is in, and `unit` that of the struct around it.
  function node(field, prefix, parent, unit) {
    const li = make("li"), path = field.name.startsWith("[") ? prefix.replace(/\.$/, "") + field.name : prefix + field.name, own = (UNITS[parent] || {})[field.name] || unit;
    const key = make("span", "key", field.name), type = make("span", "soft", field.type);
    const plot = on.plot && field.is_number ? button("+", async () => {
      let which = path; if (field.values) { const i = await ask(`Which element of ${path}?`, [["Plot", true], ["Cancel", null]], "0"); if (i === null) return; which += `[${parseInt(i, 10) || 0}]`; }
      on.plot(`${topic.name}.${which}`, own);
    }, "plot") : null;
    if (plot) plot.setAttribute("aria-label", `plot ${path}`);
    if (field.value !== undefined) { li.append(key, make("span", "value", field.value + (own && field.is_number ? " " + own : ""))); if (plot) li.append(plot); li.title = field.type; return li; }
    const details = make("details"), summary = make("summary"), isList = field.length !== undefined, count = (field.values || field.items).length;
    summary.append(key); details.append(summary);
    if (field.time_ns) summary.append(make("span", "value", BigInt(field.time_ns) > 10n ** 17n ? dateOf(field.time_ns) : spanOf(field.time_ns)));
    else if (field.span_ns) summary.append(make("span", "value", spanOf(field.span_ns)));
    else summary.append(make("span", "soft", isList ? `${field.type.replace("[]", "")}[${field.length}]` : field.type));
    const isOpen = field.time_ns || field.span_ns || (isList && field.length > 12) ? false : true;
    const opens = () => details.open !== isOpen ? changed.add(path) : changed.delete(path); details.open = changed.has(path) ? !isOpen : isOpen; details.addEventListener("toggle", opens);
    if (field.values) { const line = make("div", "values"); field.values.forEach((v, i) => { const one = make("span", "", v); one.title = `[${field.from + i}]`; line.append(one, " "); }); if (own && count) line.append(own); details.append(line); if (plot && field.length) details.append(plot); }
    else { const ul = make("ul"); for (const item of field.items) ul.append(node(item, isList ? path : path + ".", field.type, item.name.startsWith("[") ? null : own)); details.append(ul); }
    if (isList && field.from + count < field.length && !source.isLive) { const more = button(`${field.from + count} to ${Math.min(field.length, field.from + count + 50) - 1} of ${field.length} …`, () => { changed[isOpen ? "delete" : "add"](path); go({ step: "this", open: path, from: field.from + count }); }, "more"); details.append(more); }
    if (isList && field.from > 0) details.append(button("from the beginning", () => go({ step: "this" }), "more"));
    li.append(details); return li;
  }
  // One picture is on its way; of those wanted meanwhile the newest is next.
  async function picture(way = { step: "this" }) {
    if (!topic) return;
    wish = { ...here(), ...way, low: range && range[0], high: range && range[1] }; if (busy) return;
    busy = true;
    while (wish) {
      const now = wish, asked = topic; wish = null;
      try {
        const { said, about, image } = await pictureOf(source.path("picture", query(now)));
        if (asked !== topic) continue;
        if (said) { canvas.hidden = true; put(legend, said); continue; }
        canvas.hidden = false; canvas.width = image.width; canvas.height = image.height; canvas.getContext("2d").drawImage(image, 0, 0);
        canvas.setAttribute("aria-label", `${topic.name}: picture of ${image.width} × ${image.height} pixels`); canvas.dataset.time = about.time_ns; canvas.dataset.shown = ++seen; describe(about, image);
        if (now.step === "at") on.moved(about.time_ns);
      } catch { put(legend, "The picture cannot be shown."); }
    }
    busy = false;
  }
  function describe(about, image) {
    legend.replaceChildren();
    const say = text => legend.append(make("span", "soft", text)), near = n => Math.abs(n) >= 100 ? n.toFixed(0) : n.toFixed(2);
    say(about.kind === "cloud" ? `${number(about.points)} points from above, ${near(about.side)} m wide, x from ${near(about.left)} m, y to ${near(about.top)} m` : about.kind === "grid" ? `${image.width} × ${image.height} cells of ${about.metres_per_cell.toFixed(3)} m, ${number(about.known)} known; from (${near(about.left)}, ${near(about.bottom)}) m` : `${about.width || image.width} × ${about.height || image.height}, ${about.encoding}`);
    if (!about.legend) return;
    const isDepth = about.kind === "depth", bar = make("canvas"); bar.width = 120; bar.height = 12; bar.setAttribute("aria-hidden", "true"); bar.className = "bar-scale";
    const c = bar.getContext("2d"), g = c.createLinearGradient(0, 0, 120, 0); about.legend.forEach((stop, i) => g.addColorStop(i / (about.legend.length - 1), stop)); c.fillStyle = g; c.fillRect(0, 0, 120, 12);
    if (isDepth) { low.value = Math.round(about.low); high.value = Math.round(about.high); legend.append(low, bar, high, make("span", "soft", about.encoding.includes("mono") ? "" : "mm"), fit); } else { say(near(about.low)); legend.append(bar); say(`${near(about.high)} (${about.by})`); }
  }
  async function follow(mine = ++going) {
    clearTimeout(timer); if (!topic) return;
    if (!held && !document.hidden) {
      try {
        const reply = await (await fetch(source.path("message", query({ topic: topic.name, after: at ? at.number : 0 })))).json();
        if (mine !== going) return;
        if (!reply.ok) { put(parts.when, String(reply.error)); return; }
        if (reply.found) { at = reply.found; show(); } else if (!at) put(parts.when, reply.note || "Waiting for a message.");
      } catch { put(parts.when, "holdall did not answer."); }
    }
    if (mine === going) timer = setTimeout(follow, 200, mine);
  }
  const viewer = {
    // Shows a topic, its message at a time in nanoseconds.
    open(next, ns) {
      const isOther = !topic || topic.name !== next.name; topic = next; box.hidden = false;
      if (isOther) { at = null; list = range = null; changed = new Set(); parts.tree.replaceChildren(); parts.picture.hidden = true; put(parts.when, ""); }
      put(parts.title, next.name); parts.title.title = next.type; source.isLive ? follow() : go({ step: "at", at: ns });
    },
    close() { topic = null; going++; box.hidden = true; clearTimeout(timer); },
    get topic() { return topic; }, get shown() { return at; }, where,
  };
  return viewer;
}
