const $ = id => document.getElementById(id);
if (location.search) history.replaceState(null, "", location.pathname + location.hash);
const make = (tag, name, text) => { const e = document.createElement(tag); if (name) e.className = name; if (text !== undefined) e.textContent = text; return e; };
const put = (e, text) => { if (e.textContent !== text) e.textContent = text; };
const button = (label, act, mood, id) => { const b = make("button", mood, label); b.type = "button"; if (id) b.id = id; b.addEventListener("click", act); return b; };
const number = n => n >= 1e9 ? (n / 1e9).toFixed(2) + " G" : n >= 1e6 ? (n / 1e6).toFixed(2) + " M" : n >= 1e4 ? (n / 1e3).toFixed(1) + " k" : String(Math.round(n));
const hertz = n => n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n >= 0.005 || n === 0 ? String(Math.round(n * 100) / 100) : "<0.01";
const bytes = n => { const units = ["B", "KiB", "MiB", "GiB", "TiB"]; let i = 0; while (n >= 1024 && i < 4) { n /= 1024; i++; } return (i && n < 100 ? n.toFixed(1) : n.toFixed(0)) + " " + units[i]; };
const two = n => String(n).padStart(2, "0");
const clock = s => { s = Math.floor(s); const h = Math.floor(s / 3600); return (h ? h + ":" : "") + two(Math.floor(s / 60) % 60) + ":" + two(s % 60); };
const span = s => s < 1 ? Math.round(s * 1000) + " ms" : s < 90 ? s.toFixed(1) + " s" : s < 5400 ? Math.round(s / 60) + " min" : s < 172800 ? (s / 3600).toFixed(1) + " h" : Math.round(s / 86400) + " days";
const day = d => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`, hour = d => `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
const date = ns => { const d = new Date(Number(BigInt(ns) / 1000000n)); return `${day(d)} ${hour(d)}`; };
const dateOf = ns => date(ns) + "." + String(((BigInt(ns) % 1000000000n) + 1000000000n) % 1000000000n).padStart(9, "0");

function refuse(text) { $("refusal").hidden = !text; put($("refusal"), text); }
async function get(path) {
  const answer = await fetch(path), reply = await answer.json();
  reply.isMissing = answer.status === 404;
  if (!reply.ok) refuse(String(reply.error));
  return reply;
}
async function post(path, body = {}) {
  try {
    const reply = await (await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();
    refuse(reply.ok ? "" : String(reply.error)); return reply;
  } catch { refuse("holdall did not answer."); return { ok: false }; }
}
// A question with some answers, the last one of which does nothing; with a placeholder it asks for a text, which is then the answer.
function ask(text, answers, placeholder, given = "") {
  put($("ask-text"), text); const choice = $("ask-choice"), input = $("ask-input"); choice.replaceChildren();
  input.hidden = placeholder === undefined; input.placeholder = placeholder || ""; input.setAttribute("aria-label", placeholder || ""); input.value = given;
  return new Promise(done => {
    answers.forEach(([label, value, mood], i) => {
      const b = make("button", mood || "", label); b.value = value || ""; b.id = value === null ? "ask-no" : i ? "" : "ask-yes";
      b.addEventListener("click", () => done(value !== null && placeholder !== undefined ? input.value.trim() : value)); choice.append(b);
    });
    input.onkeydown = e => { if (e.key === "Enter") { e.preventDefault(); choice.firstChild.click(); } };
    // The event of an earlier question may come late.
    $("ask").onclose = () => { if (!$("ask").open) done(null); };
    $("ask").showModal(); (placeholder === undefined ? choice.lastChild : input).focus();
  });
}
