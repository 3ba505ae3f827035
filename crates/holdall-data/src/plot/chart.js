// A time axis with values and topics below it: zoom, pan, readings of all rows at the pointer, and a cursor. `on.seek(ms, lane)` is called when a time is
// chosen, `on.open(lane)` when a topic is, `on.zoom(from, until)` after the shown part has changed, `on.removed(panel, line)` for a line.
function makeChart(root, tools, on = {}) {
  const tip = document.getElementById("tip"), COLOURS = ["", "#c9591f", "#23915a", "#9a4cc0", "#a47b00", "#c2476f"];
  const chart = { data: null, panels: [], from: 0, until: 1, hover: null, cursor: null, show: { periods: true, sizes: true } };
  const element = (tag, name, text) => { const e = document.createElement(tag); if (name) e.className = name; if (text !== undefined) e.textContent = text; return e; };
  const expand = runs => runs ? runs.flatMap(one => Array.isArray(one) ? Array(one[0]).fill(one[1]) : [one]) : null;
  const digits = value => { const size = Math.abs(value); return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(3) : String(+value.toPrecision(5)); };
  const length = ms => ms < 1 ? digits(ms * 1e3) + " µs" : ms < 1e3 ? digits(ms) + " ms" : ms < 12e4 ? digits(ms / 1e3) + " s" : ms < 72e5 ? digits(ms / 6e4) + " min" : digits(ms / 36e5) + " h";
  const size = count => { let unit = 0; while (count >= 1024 && unit < 4) { count /= 1024; unit++; } return digits(count) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit]; };
  const two = n => String(n).padStart(2, "0"), whole = () => chart.data.span_ms;
  const day = d => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`, hour = d => `${two(d.getHours())}:${two(d.getMinutes())}`;
  // Times before 1971 are spans of a simulation.
  const isDate = () => chart.data.start_ms > 3e10 && !isNaN(new Date(chart.data.start_ms));
  const zone = () => { const m = -new Date(chart.data.start_ms).getTimezoneOffset(); return "UTC" + (m < 0 ? "−" : "+") + Math.floor(Math.abs(m) / 60) + (m % 60 ? ":" + two(Math.abs(m) % 60) : ""); };
  const time = ms => { const d = new Date(chart.data.start_ms + ms); return isDate() ? `${day(d)} ${hour(d)}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, "0")}` : ""; };
  Object.assign(chart, { digits, length, size, time });

  chart.set = data => {
    for (const lane of data.lanes) for (const key of ["n", "h", "b", "g", "r"]) lane[key] = expand(lane[key]);
    chart.data = data; chart.from = 0; chart.until = data.span_ms; rebuild();
  };
  // Lanes of a part of the time, which are finer.
  chart.part = data => {
    const start = data.start_ms - chart.data.start_ms, known = new Map(data.lanes.map(lane => [lane.name, lane]));
    for (const lane of chart.data.lanes) { const fine = known.get(lane.name); lane.part = fine ? { start, span: data.span_ms, columns: data.columns, n: expand(fine.n), h: expand(fine.h), r: expand(fine.r), gaps: fine.gaps.map(([from, long, cause]) => [from + start, long, cause]) } : null; }
    soon();
  };
  // What is drawn of a lane: its finer part where that has all that is seen.
  const seen = lane => lane.part && chart.from >= lane.part.start - 1e-6 && chart.until <= lane.part.start + lane.part.span + 1e-6 ? lane.part : { start: 0, span: whole(), columns: chart.data.columns, n: lane.n, h: lane.h, r: lane.r, gaps: lane.gaps || [] };
  // A line of a panel is as the plot has it, with the time that it covers.
  chart.line = (line, of) => ({ ...line, start: of.start_ms - chart.data.start_ms, span: of.span_ms, columns: of.columns });

  let rows = [];
  function addRow(kind, of) {
    const row = element("div", "row"), name = element("div", "name"), canvas = element("canvas");
    canvas.setAttribute("role", "img"); row.append(name, canvas); root.append(row); rows.push({ kind, of, canvas, name }); return { name, canvas };
  }
  function rebuild() {
    rows = []; root.replaceChildren();
    const axis = addRow("axis", null), { data } = chart;
    axis.name.append(element("b", "", isDate() ? day(new Date(data.start_ms)) : "time"), document.createElement("br"), element("span", "faint", isDate() ? `time of day, ${zone()}` : "since the beginning"));
    axis.canvas.setAttribute("aria-label", `time axis: ${length(whole())}, ${data.markers.length} markers, ${data.splits.length + 1} files`);
    for (const panel of chart.panels) addPanel(panel);
    for (const lane of data.lanes) {
      const { name, canvas } = addRow("lane", lane);
      if (on.open) { const open = element("button", "open", lane.name); open.type = "button"; open.addEventListener("click", () => on.open(lane)); name.append(open); } else name.append(element("b", "", lane.name));
      const about = [`${lane.messages.toLocaleString("en")} messages`, lane.bytes === undefined ? "" : size(lane.bytes)].filter(Boolean).join(", ");
      name.append(document.createElement("br"), element("span", "faint", about));
      if (lane.lost) name.append(document.createElement("br"), element("span", "lost", `${lane.lost.toLocaleString("en")} lost`));
      if ((lane.silent || []).length) name.append(document.createElement("br"), element("span", "lost", "end unknown"));
      canvas.setAttribute("aria-label", `${lane.name}: ${lane.messages} messages, ${(lane.gaps || []).length} pauses, ${lane.lost == null ? "losses not known" : `${lane.lost} lost`}`);
    }
    soon();
  }
  function addPanel(panel) {
    const { name, canvas } = addRow("panel", panel); panel.readings = [];
    panel.lines.forEach((line, i) => {
      const one = element("div", "legend-line"), swatch = element("span", "swatch"), now = element("span", "now");
      line.colour = COLOURS[i % COLOURS.length]; swatch.style.background = line.colour || "var(--fill)";
      one.append(swatch, element("b", "", line.name + (line.unit ? ` [${line.unit}]` : "")), now); panel.readings.push(now);
      if (line.undecoded) one.append(element("span", "lost", `${line.undecoded} not decoded`));
      if (on.removed) { const b = element("button", "", "×"); b.type = "button"; b.setAttribute("aria-label", `remove ${line.name}`); b.addEventListener("click", () => on.removed(panel, line)); one.append(b); one.lastChild.style.cssText = "min-height:24px;padding:0 7px"; }
      name.append(one, element("span", "faint", `${line.values.toLocaleString("en")} values`));
    });
    const bar = element("div", "tools"), scale = (factor, label, text) => { const b = element("button", "", text); b.type = "button"; b.setAttribute("aria-label", label); b.addEventListener("click", () => { zoomY(panel, factor, null); soon(); }); bar.append(b); };
    scale(0.5, "zoom in vertically", "↕+"); scale(2, "zoom out vertically", "↕−"); scale(0, "fit vertically", "fit"); name.append(bar);
    canvas.setAttribute("aria-label", `${panel.lines.map(line => line.name).join(", ")} over time`);
  }
  chart.rebuild = rebuild;
  function rangeOf(panel) {
    let low = Infinity, high = -Infinity;
    for (const line of panel.lines) {
      const [a, b] = [chart.from, chart.until].map(ms => (ms - line.start) / line.span * line.columns);
      for (let i = Math.max(0, Math.floor(a)); i <= Math.min(line.columns - 1, b); i++) if (line.min[i] !== null) { low = Math.min(low, line.min[i]); high = Math.max(high, line.max[i]); }
    }
    for (const { value } of panel.thresholds || []) { low = Math.min(low, value); high = Math.max(high, value); }
    if (low > high) return null;
    // Equal values are in the middle, and what is never negative begins at 0.
    const room = high > low ? (high - low) * .06 : Math.max(1, Math.abs(high) * .1); return [low >= 0 && low - room < 0 ? -room / 2 : low - room, high + room];
  }
  function zoomY(panel, factor, at) {
    if (!factor) { panel.y = null; return; }
    const now = panel.y || rangeOf(panel); if (!now) return;
    const middle = at === null ? (now[0] + now[1]) / 2 : at; panel.y = now.map(value => middle + (value - middle) * factor);
  }

  const SIZES = [1, 2, 5].flatMap(n => [1, 10, 100].map(p => n * p)).concat([1, 2, 5, 10, 15, 30].map(n => n * 1e3), [1, 2, 5, 10, 15, 30].map(n => n * 6e4), [1, 2, 3, 6, 12].map(n => n * 36e5), [1, 2, 7, 14, 30, 90, 365].map(n => n * 864e5)).sort((a, b) => a - b);
  const round = least => { const power = 10 ** Math.floor(Math.log10(least)); return [1, 2, 5, 10].map(factor => factor * power).find(one => one >= least * 0.999); };
  function ticks(width) {
    const least = (chart.until - chart.from) / Math.max(2, width / 110), every = SIZES.find(one => one >= least) || round(least), step = least < 1 ? round(least) : every, found = [];
    const base = isDate() ? chart.data.start_ms - new Date(chart.data.start_ms).getTimezoneOffset() * 6e4 : 0;
    for (let ms = Math.ceil((base + chart.from) / step) * step - base; ms <= chart.until && found.length < 60; ms += step) {
      const d = new Date(chart.data.start_ms + ms), seconds = `${hour(d)}:${two(d.getSeconds())}`;
      const text = !isDate() ? length(Math.abs(ms)) : step >= 864e5 ? day(d) : step >= 6e4 ? hour(d) : step >= 1e3 ? seconds : `${seconds}.${String(d.getMilliseconds()).padStart(3, "0")}`;
      const midnight = isDate() && step < 864e5 && hour(d) === "00:00" && d.getSeconds() === 0;
      found.push([ms, midnight ? day(d) : text]);
    }
    return found;
  }
  let colours = null, large = false;
  const HEIGHT = { axis: 34, panel: 130 };
  function draw() {
    if (!chart.data) return;
    const style = getComputedStyle(document.documentElement);
    colours = Object.fromEntries(["paper", "ink", "soft", "line", "fill", "bad", "warn", "good", "card"].map(name => [name, style.getPropertyValue("--" + name).trim()]));
    large = parseFloat(getComputedStyle(document.body).fontSize) > 17; const density = devicePixelRatio || 1;
    for (const row of rows) {
      const { kind, of, canvas } = row, sub = [[chart.show.periods && kind === "lane" && of.g, colours.warn, length], [chart.show.sizes && kind === "lane" && of.b, colours.good, size]].filter(([values]) => values);
      const width = canvas.clientWidth || 300, height = HEIGHT[kind] || 20 + 24 * sub.length + (of.thumbs ? 66 : 0);
      canvas.style.height = height + "px"; canvas.width = Math.round(width * density); canvas.height = Math.round(height * density);
      const p = canvas.getContext("2d"); p.scale(density, density); p.font = `${large ? 14 : 11}px system-ui, sans-serif`;
      const x = ms => (ms - chart.from) / (chart.until - chart.from) * width;
      p.strokeStyle = colours.line; p.lineWidth = 1; p.textAlign = "center"; let free = -Infinity;
      for (const [ms, text] of ticks(width)) {
        p.beginPath(); p.moveTo(x(ms), 0); p.lineTo(x(ms), height); p.stroke();
        const half = p.measureText(text).width / 2, at = Math.max(half, Math.min(width - half, x(ms)));
        if (kind === "axis" && at - half > free) { p.fillStyle = colours.soft; p.fillText(text, at, 11); free = at + half + 6; }
      }
      p.textAlign = "left";
      if (kind === "lane") drawLane(p, of, x, width, sub); else if (kind === "panel") drawPanel(p, of, x, width, height);
      drawMarks(p, x, width, height, kind, of);
    }
    readings(); showTools();
  }
  function upright(p, at, height, colour, dash) { p.strokeStyle = colour; p.setLineDash(dash || []); p.beginPath(); p.moveTo(at, 0); p.lineTo(at, height); p.stroke(); p.setLineDash([]); }
  // What the contract found wrong: on the lane of its topic, and on the axis.
  const brokenOn = (kind, of) => (chart.data.violations || []).filter(([, , topic]) => kind !== "lane" || !topic || topic === of.name);
  function drawMarks(p, x, width, height, kind, of) {
    if (kind !== "panel") for (const [from, until] of brokenOn(kind, of)) { const tall = kind === "axis" ? 4 : height; p.globalAlpha = kind === "axis" ? .8 : .18; p.fillStyle = colours.bad; p.fillRect(x(from), height - tall, Math.max(3, x(until) - x(from)), tall); p.globalAlpha = 1; }
    for (const split of chart.data.splits) upright(p, x(Array.isArray(split) ? split[0] : split), height, colours.ink, [3, 3]);
    for (const [ms] of chart.data.restarts || []) upright(p, x(ms), height, colours.bad);
    let free = 0;
    for (const [ms, name] of chart.data.markers) {
      const at = x(ms); if (at < 0 || at > width) continue;
      p.globalAlpha = .7; upright(p, at, height, colours.good); p.globalAlpha = 1;
      if (kind !== "axis") continue;
      p.fillStyle = colours.good; p.beginPath(); p.moveTo(at - 5, 16); p.lineTo(at + 5, 16); p.lineTo(at, 26); p.fill();
      const text = name.slice(0, 40), wide = p.measureText(text).width, left = at + 8 + wide < width ? at + 8 : at - 8 - wide;
      if (left >= free) { p.fillStyle = colours.ink; p.fillText(text, left, 26); free = left + wide + 10; }
    }
    if (chart.cursor !== null) { p.lineWidth = 2; upright(p, x(chart.cursor), height, colours.ink); p.lineWidth = 1; }
    if (chart.hover !== null) { p.globalAlpha = .45; upright(p, x(chart.hover), height, colours.ink); p.globalAlpha = 1; }
  }
  function drawLane(p, lane, x, width, sub) {
    const { start, span, columns, h, gaps } = seen(lane), each = span / columns, wide = each / (chart.until - chart.from) * width, steps = chart.data.steps || 4;
    const first = Math.max(0, Math.floor((chart.from - start) / each)), last = Math.min(columns - 1, Math.floor((chart.until - start - 1e-9) / each)), at = i => x(start + i * each);
    p.globalAlpha = .35; p.fillStyle = colours.warn; for (const [from, long] of gaps) p.fillRect(x(from), 0, Math.max(1, x(from + long) - x(from)), 20);
    p.globalAlpha = 1; p.fillStyle = colours.fill;
    for (let i = first; i <= last; i++) if (h[i]) { const tall = Math.max(3, h[i] / steps * 20), left = Math.floor(at(i)); p.fillRect(left, 20 - tall, Math.max(1, Math.ceil(at(i + 1)) - left), tall); }
    p.fillStyle = colours.bad; for (const [from, until] of lane.losses) p.fillRect(x(from), 0, Math.max(2, x(until) - x(from)), 20);
    for (const [ms] of lane.silent || []) { upright(p, Math.min(width - 1, x(ms)), 20, colours.bad, [2, 2]); }
    let top = 22;
    for (const [values, colour, text] of sub) {
      let high = 0; for (let i = first; i <= last; i++) high = Math.max(high, values[i]);
      p.fillStyle = colour;
      // A column that is much higher than the one before has a stroke down to the base, so that it is seen alone.
      for (let i = first, before = 0; high > 0 && i <= last; i++) if (values[i]) { const tall = values[i] / high * 18; p.fillRect(at(i), top + 20 - tall, Math.max(wide, 1), before < values[i] * .7 ? tall : 1.6); before = values[i]; }
      if (high > 0) { const words = "up to " + text(high), long = p.measureText(words).width; p.globalAlpha = .8; p.fillStyle = colours.paper; p.fillRect(0, top + 1, long + 6, 15); p.globalAlpha = 1; p.fillStyle = colours.soft; p.fillText(words, 2, top + 12); }
      top += 24;
    }
    for (const [ms, picture] of lane.thumbs || []) { const tall = 64, long = picture.width / picture.height * tall; p.drawImage(picture, Math.max(0, Math.min(width - long, x(ms) - long / 2)), top, long, tall); }
  }
  function drawPanel(p, panel, x, width, height) {
    const range = panel.y || rangeOf(panel); panel.seen = range; if (!range) { p.fillStyle = colours.soft; p.fillText("no values here", 6, 20); return; }
    const [low, high] = range, y = value => (high - value) / (high - low) * height, every = round((high - low) / 6);
    p.strokeStyle = colours.line;
    for (let value = Math.ceil(low / every) * every; value <= high; value += every) { p.beginPath(); p.moveTo(0, y(value)); p.lineTo(width, y(value)); p.stroke(); }
    for (const { op, value } of panel.thresholds || []) {
      p.fillStyle = colours.bad; p.globalAlpha = .12; op.startsWith(">") ? p.fillRect(0, 0, width, Math.max(0, y(value))) : p.fillRect(0, y(value), width, height); p.globalAlpha = 1;
      p.strokeStyle = colours.bad; p.setLineDash([6, 4]); p.beginPath(); p.moveTo(0, y(value)); p.lineTo(width, y(value)); p.stroke(); p.setLineDash([]);
    }
    for (const line of panel.lines) {
      const wide = line.span / line.columns; p.strokeStyle = line.colour || colours.fill; p.lineWidth = 1.3; p.lineJoin = "round"; p.beginPath(); let before = -1e9;
      for (let i = Math.max(0, Math.floor((chart.from - line.start) / wide) - 1); i <= Math.min(line.columns - 1, (chart.until - line.start) / wide + 1); i++) if (line.min[i] !== null) {
        const at = x(line.start + (i + .5) * wide); i - before > line.columns / 8 ? p.moveTo(at, y(line.max[i])) : p.lineTo(at, y(line.max[i])); p.lineTo(at, y(line.min[i]) + .6); before = i;
      }
      p.stroke(); p.lineWidth = 1;
    }
    for (let value = Math.ceil(low / every) * every; value <= high; value += every) { const text = digits(Math.abs(value) < every / 1e6 ? 0 : value), long = p.measureText(text).width, base = Math.max(large ? 14 : 11, y(value) - 2); p.globalAlpha = .75; p.fillStyle = colours.paper; p.fillRect(0, base - 10, long + 6, 12); p.globalAlpha = 1; p.fillStyle = colours.soft; p.fillText(text, 3, base); }
  }
  const columnOf = (line, ms) => Math.floor((ms - line.start) / line.span * line.columns);
  // The value at a time: of the next column that has one, when there are fewer values than columns.
  function valueAt(line, ms) {
    const at = columnOf(line, ms);
    for (let away = 0; away < Math.max(2, line.columns / 50); away++) for (const i of [at - away, at + away]) if (i >= 0 && i < line.columns && line.min[i] !== null) return line.min[i] === line.max[i] ? digits(line.min[i]) : `${digits(line.min[i])} … ${digits(line.max[i])}`;
    return "–";
  }
  function readings() {
    const ms = chart.hover ?? chart.cursor;
    for (const panel of chart.panels) panel.lines.forEach((line, i) => { if (panel.readings && panel.readings[i]) panel.readings[i].textContent = ms === null ? "" : valueAt(line, ms); });
  }
  let waits = false;
  const soon = () => { if (!waits) { waits = true; requestAnimationFrame(() => { waits = false; draw(); }); } };
  chart.draw = soon;
  let settled = 0;
  chart.view = (from, long) => {
    long = Math.min(whole(), Math.max(long, Math.min(1, whole()), whole() / 1e6)); from = Math.min(Math.max(0, from), whole() - long); chart.from = from; chart.until = from + long; soon();
    if (on.zoom) { clearTimeout(settled); settled = setTimeout(() => on.zoom(chart.from, chart.until), 250); }
  };
  const zoom = (factor, middle) => { const long = (chart.until - chart.from) * factor; chart.view(middle - (middle - chart.from) * factor, long); };
  // The cursor, in sight.
  chart.place = ms => {
    chart.cursor = ms; const long = chart.until - chart.from;
    if (ms !== null && (ms < chart.from || ms > chart.until)) chart.view(ms - long / 2, long); else soon();
  };
  const buttons = {}, shown = element("span", "shown"); shown.id = "shown";
  const middle = () => chart.hover ?? chart.cursor ?? (chart.from + chart.until) / 2;
  for (const [id, label, text, act] of [["in", "Zoom in", "+", () => zoom(.5, middle())], ["out", "Zoom out", "−", () => zoom(2, middle())], ["left", "Earlier", "◀", () => chart.view(chart.from - (chart.until - chart.from) / 2, chart.until - chart.from)], ["right", "Later", "▶", () => chart.view(chart.from + (chart.until - chart.from) / 2, chart.until - chart.from)], ["all", "Show all", "All", () => chart.view(0, whole())]]) {
    const b = element("button", "", text); b.type = "button"; b.id = id; if (text !== "All") b.setAttribute("aria-label", label); b.addEventListener("click", () => chart.data && act()); tools.append(b); buttons[id] = b;
  }
  tools.append(shown);
  function showTools() {
    const isPart = chart.until - chart.from < whole();
    shown.textContent = isPart ? `${length(chart.from)} to ${length(chart.until)} of ${length(whole())}` : "";
    buttons.out.disabled = buttons.all.disabled = !isPart; buttons.left.disabled = chart.from <= 0; buttons.right.disabled = chart.until >= whole();
  }
  addEventListener("keydown", event => { const of = { "+": "in", "-": "out", 0: "all" }[event.key]; if (of && chart.data && root.isConnected && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) buttons[of].click(); });

  const rowOf = event => rows.find(row => row.canvas === event.target);
  const timeAt = event => { const box = event.target.getBoundingClientRect(); return chart.from + (event.clientX - box.left) / box.width * (chart.until - chart.from); };
  let grabbed = null;
  function say(event, { kind, of }) {
    const ms = chart.hover, { start, span, columns, n, r, gaps } = kind === "lane" ? seen(of) : { start: 0, span: whole(), columns: 1 }, i = Math.min(columns - 1, Math.max(0, Math.floor((ms - start) / span * columns))), width = span / columns, near = (chart.until - chart.from) / 150;
    let text = [length(Math.max(0, ms)), time(ms)].filter(Boolean).join("  ");
    if (kind === "lane") {
      text += `\n${of.name}\n${n[i].toLocaleString("en")} messages in ${length(width)}` + (r ? `, ${digits(r[i])} Hz` : "");
      if (n[i] && of.b) text += `, up to ${size(of.b[i])}\nlongest period ${of.g[i] ? length(of.g[i]) : "-"}`;
      const gap = gaps.find(([from, long]) => ms >= from && ms <= from + long); if (gap) text += `\npause of ${length(gap[1])}: ${gap[2]}`;
      const loss = of.losses.find(([a, b]) => b + near >= ms && a - near <= ms); if (loss) text += `\n${loss[2].toLocaleString("en")} lost (${loss[3]})`;
      for (const [since, node] of of.silent || []) if (ms >= since - near) text += `\nend unknown: ${node || "a publisher"}, last heard ${time(since) || length(since)}`;
    } else if (kind === "panel") for (const line of of.lines) text += `\n${line.name}: ${valueAt(line, ms)}${line.unit ? " " + line.unit : ""}`;
    for (const [from, until, topic, what] of brokenOn(kind, of)) if (ms >= from - near && ms <= until + near) text += `\n✖ contract: ${kind === "lane" || !topic ? "" : topic + ": "}${what}`;
    for (const [at, name] of chart.data.markers) if (Math.abs(at - ms) < near) text += `\n▼ ${name}`;
    for (const split of chart.data.splits) if (Array.isArray(split) && Math.abs(split[0] - ms) < near) text += `\nfile ${split[1]} begins`;
    for (const [at, reason] of chart.data.restarts || []) if (Math.abs(at - ms) < near) text += `\nrestarted: ${reason}`;
    tip.textContent = text;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px"; tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)) + "px";
  }
  root.addEventListener("pointermove", event => {
    const row = rowOf(event); if (!row || !chart.data) { chart.hover = null; tip.textContent = ""; return soon(); }
    if (grabbed) { const box = event.target.getBoundingClientRect(); if (Math.abs(event.clientX - grabbed.x) > 4) grabbed.moved = true; if (grabbed.moved) chart.view(grabbed.from - (event.clientX - grabbed.x) / box.width * grabbed.long, grabbed.long); }
    chart.hover = timeAt(event); say(event, row); soon();
  });
  root.addEventListener("pointerdown", event => { if (rowOf(event)) { grabbed = { x: event.clientX, from: chart.from, long: chart.until - chart.from, moved: false }; event.target.setPointerCapture(event.pointerId); } });
  root.addEventListener("pointerup", event => { const row = rowOf(event); if (grabbed && !grabbed.moved && row) { chart.place(Math.min(whole(), Math.max(0, timeAt(event)))); if (on.seek) on.seek(chart.cursor, row.kind === "lane" ? row.of : null); } });
  addEventListener("pointerup", () => { grabbed = null; }); addEventListener("pointercancel", () => { grabbed = null; });
  root.addEventListener("pointerleave", () => { chart.hover = null; tip.textContent = ""; soon(); });
  root.addEventListener("wheel", event => {
    const row = rowOf(event); if (!row || !(event.ctrlKey || event.shiftKey || event.altKey)) return;
    event.preventDefault(); const factor = Math.exp(Math.sign(event.deltaY || event.deltaX) * .25);
    if (event.shiftKey && row.kind === "panel" && row.of.seen) { const box = row.canvas.getBoundingClientRect(), [low, high] = row.of.seen; zoomY(row.of, factor, high - (event.clientY - box.top) / box.height * (high - low)); soon(); } else zoom(factor, timeAt(event));
  }, { passive: false });
  root.addEventListener("dblclick", event => { if (rowOf(event)) zoom(.25, timeAt(event)); });
  addEventListener("resize", soon); matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
  return chart;
}
