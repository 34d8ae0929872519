"""The look of a report. Colours are named by meaning, once for light and once for dark."""

from __future__ import annotations

CSS = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1b2430; --soft: #5c6877; --rule: #d9dfe6; --panel: #f5f7fa;
  --data: #2166ac; --fill: #2166ac33; --bad: #c0392b; --badfill: #c0392b22;
  --good: #1c7c4a; --goodfill: #1c7c4a1f; --warn: #b06a00;
  --p1: #8c96a3; --p2: #d9822b; --p3: #2166ac; --r1: #d9822b; --r2: #1c7c4a; --r3: #7d4cb2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12171d; --ink: #e4e9ef; --soft: #9aa7b5; --rule: #2c3540; --panel: #1a2129;
    --data: #6db3f2; --fill: #6db3f233; --bad: #ff7b6b; --badfill: #ff7b6b2b;
    --good: #5fcf94; --goodfill: #5fcf9426; --warn: #f0b35a;
    --p1: #7d8998; --p2: #f0a45a; --p3: #6db3f2; --r1: #f0a45a; --r2: #5fcf94; --r3: #c09af0;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif;
}
main { max-width: 1064px; margin: 0 auto; padding: 28px 32px 40px; }
h1 { font-size: 25px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 21px; margin: 40px 0 4px; padding-top: 20px; border-top: 1px solid var(--rule); }
h3 { font-size: 16px; margin: 26px 0 4px; }
p { margin: 0 0 8px; max-width: 76ch; }
.note, .facts { color: var(--soft); }
.facts { font-size: 13.5px; overflow-wrap: anywhere; max-width: none; }
.facts span { display: inline-block; margin-right: 18px; }
.facts b { font-weight: 600; color: var(--ink); }
.badge {
  display: inline-block; padding: 2px 12px; border-radius: 999px; font-size: 14px;
  font-weight: 600; vertical-align: 4px; margin-right: 10px;
}
.badge.good { color: var(--good); background: var(--goodfill); }
.badge.bad { color: var(--bad); background: var(--badfill); }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0 8px; }
.tile { flex: 1 1 150px; background: var(--panel); border-radius: 8px; padding: 12px 14px; }
.tile .what { font-size: 13px; color: var(--soft); }
.tile .value { font-size: 23px; font-weight: 650; line-height: 1.3; }
.tile .value.bad { color: var(--bad); }
.tile .more { font-size: 12.5px; color: var(--soft); }
.problems { border-left: 4px solid var(--bad); padding: 2px 0 2px 12px; margin: 12px 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; margin-top: 6px; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
details { margin-top: 14px; }
summary { cursor: pointer; color: var(--soft); }
footer { margin-top: 36px; color: var(--soft); font-size: 12.5px; }
svg { display: block; width: 100%; height: auto; margin-top: 4px; font-size: 12px; }
svg text { fill: var(--ink); }
svg .tick { fill: var(--soft); }
svg .name { font-size: 12.5px; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .area { fill: var(--fill); }
svg .curve { fill: none; stroke: var(--data); stroke-width: 1.6; stroke-linejoin: round; }
svg .mean { stroke: var(--ink); stroke-width: 1.4; stroke-dasharray: 5 3; }
svg .meanword {
  font-weight: 600; paint-order: stroke; stroke: var(--paper); stroke-width: 4px;
  stroke-linejoin: round;
}
svg .band { fill: var(--badfill); }
svg .down { fill: var(--bad); }
svg .rowback { fill: var(--panel); }
svg .bar { fill: var(--data); }
svg .mark { stroke-width: 1.3; }
svg .mark.fault { stroke: var(--bad); }
svg .mark.repair, svg .mark.failback { stroke: var(--good); }
svg .mark.failover { stroke: var(--warn); stroke-dasharray: 4 3; }
svg .word { font-weight: 600; }
svg .word.fault { fill: var(--bad); }
svg .word.repair, svg .word.failback { fill: var(--good); }
svg .word.failover { fill: var(--warn); }
svg .p-detect { fill: var(--p1); }
svg .p-agree { fill: var(--p2); }
svg .p-resume { fill: var(--p3); }
svg .loss { fill: none; stroke-width: 2; } svg .cross { stroke-width: 2.5; }
svg .run0 { stroke: var(--data); } svg .run1 { stroke: var(--r1); stroke-dasharray: 7 4; }
svg .run2 { stroke: var(--r2); stroke-dasharray: 2 4; stroke-width: 3; }
svg .run3 { stroke: var(--r3); }
svg .cross.run1, svg .cross.run2 { stroke-dasharray: none; }
@media print { details { display: none; } }
"""
