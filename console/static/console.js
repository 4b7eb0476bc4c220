// Renews what is live on a page, and draws its charts. Pages work without it.

const EVERY_MS = 2000;
const SHOWN_S = 60; // the least: the axis of one point alone would go over years
const COLOURS = { light: ["#0b6e6e", "#b35c00", "#6b4fa3"], dark: ["#5cc4c0", "#ffb45c", "#b9a3f0"] };
const KINDS = {
  counts: { columns: [1, 3, 2], names: ["ready", "in flight", "delayed"] },
  rates: { columns: [4, 5], names: ["in/s", "out/s"] },
};
const DAY_S = 86400;
const utc = (s) => new Date(s * 1000).toISOString();

// Times as the tables have them: UTC, 24 hours, ISO 8601; the day stands below the first of it.
function times(_, splits, _axis, _space, step) {
  let day = "";
  return splits.map((s) => {
    const [date, time] = [utc(s).slice(0, 10), utc(s).slice(11, step < 60 ? 19 : 16)];
    const isNew = date !== day;
    day = date;
    if (step >= DAY_S) return date;
    return isNew ? `${time}\n${date}` : time;
  });
}

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
const charts = new Map();

function say(text) {
  const away = document.getElementById("away");
  away.textContent = text;
  away.hidden = !text;
}

function made(element) {
  const kind = KINDS[element.dataset.chart];
  const colours = COLOURS[isDark() ? "dark" : "light"];
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--soft").trim();
  const line = { stroke: style.getPropertyValue("--line").trim(), width: 1 };
  const series = kind.names.map((label, n) => ({ label, stroke: colours[n], width: 2, points: { show: false } }));
  const axis = { stroke: ink, grid: line, ticks: line };
  const options = {
    width: Math.max(element.clientWidth, 100),
    height: 190 - 34,
    series: [{}, ...series],
    tzDate: (s) => uPlot.tzDate(new Date(s * 1000), "Etc/UTC"),
    axes: [{ ...axis, values: times, space: 80 }, { ...axis, size: 56 }],
    scales: {
      x: { range: (_, low, high) => [Math.min(low, high - SHOWN_S), high] },
      y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] },
    },
    legend: { live: false },
    cursor: { show: false },
  };
  return new uPlot(options, [[], ...kind.names.map(() => [])], element);
}

async function draw() {
  const asked = new Map();
  for (const element of document.querySelectorAll("[data-chart]")) {
    const from = element.dataset.from;
    if (!asked.has(from)) asked.set(from, fetch(from, { headers: { "X-Fragment": "1" } }).then((reply) => (reply.ok ? reply.json() : null)));
    const columns = await asked.get(from);
    if (!columns || columns.length === 0 || columns[0].length < 2) continue; // one moment has no axis
    if (!charts.has(element)) charts.set(element, made(element));
    charts.get(element).setData([columns[0], ...KINDS[element.dataset.chart].columns.map((n) => columns[n])]);
  }
}

async function renew() {
  const live = document.querySelectorAll("[data-live]");
  if (live.length === 0) return;
  const reply = await fetch(location.href, { headers: { "X-Fragment": "1" }, redirect: "manual" });
  if (reply.type === "opaqueredirect") return location.reload();
  const page = new DOMParser().parseFromString(await reply.text(), "text/html");
  if (!reply.ok) {
    const why = page.querySelector("[role=alert]");
    throw new Error(why ? why.textContent : `the console answers ${reply.status}`);
  }
  for (const element of live) {
    const fresh = page.querySelector(`[data-live="${element.dataset.live}"]`);
    const isUsed = element.contains(document.activeElement);
    if (fresh && !isUsed && element.innerHTML !== fresh.innerHTML) element.replaceChildren(...fresh.childNodes);
  }
}

async function turn() {
  if (!document.hidden) {
    try {
      await renew();
      await draw();
      say("");
    } catch (error) {
      say(error instanceof TypeError ? "The console can't be reached. This page tries again by itself." : error.message);
    }
  }
  setTimeout(turn, EVERY_MS);
}

document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-all]")) return;
  for (const box of event.target.closest("form").querySelectorAll("[name=id]")) box.checked = event.target.checked;
});
addEventListener("resize", () => {
  for (const [element, chart] of charts) chart.setSize({ width: Math.max(element.clientWidth, 100), height: 190 - 34 });
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) draw().catch(() => {});
});
if (document.querySelector("[data-live], [data-chart]")) turn();
