"""How the page looks: on a screen, light or dark, on a phone, on paper."""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --page: #fcfcfb; --card: #ffffff; --ink: #1c1c1a; --soft: #66655f; --line: #e4e3de;
  --s0: #2a78d6; --s1: #1baf7a; --s2: #eda100; --s3: #4a3aa7; --s4: #e34948; --s5: #00838f; --rest: #9b9a93;
  --low: #86b6ef; --mid: #2a78d6; --high: #0d366b; --bad: #b3261e;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #161615; --card: #1e1e1c; --ink: #f1f0ec; --soft: #a9a79f; --line: #383733;
    --s0: #3987e5; --s1: #199e70; --s2: #c98500; --s3: #9085e9; --s4: #e66767; --s5: #2fa3b0; --rest: #7d7b74;
    --low: #1c5cab; --mid: #5598e7; --high: #cde2fb; --bad: #ff8a80;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p { margin: .3rem 0; color: var(--soft); max-width: 60rem; } .where { overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .7rem; margin: 1.2rem 0; }
.tile, figure { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
.tile { padding: .6rem .8rem; } .tile b { display: block; font-size: 1.35rem; font-weight: 600; }
.tile span { color: var(--soft); font-size: .85rem; } .bad { color: var(--bad); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: .9rem; }
figure { margin: 0; padding: .8rem; min-width: 0; } figcaption { font-weight: 600; }
.plot, .wide { overflow-x: auto; } svg { display: block; width: 100%; min-width: 32rem; height: auto; }
svg text { fill: var(--soft); font-size: 11.5px; } .grid { stroke: var(--line); stroke-width: 1; fill: none; }
.hover { fill: transparent; } .hover:hover { fill: var(--ink); fill-opacity: .07; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; font-size: .85rem; color: var(--soft); margin: .2rem 0; }
.legend span { max-width: 100%; overflow-wrap: anywhere; }
.key { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px; margin-right: .35rem;
  background: var(--c); print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.fill { fill: var(--c); } .line { stroke: var(--c); }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); } .s4 { --c: var(--s4); }
.s5 { --c: var(--s5); } .rest { --c: var(--rest); }
.low { --c: var(--low); } .mid { --c: var(--mid); } .high { --c: var(--high); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; white-space: nowrap; } .number { text-align: right; white-space: nowrap; }
td:first-child { overflow-wrap: anywhere; min-width: 9rem; } .none { padding: .4rem 0; }
@media print {
  .plot, .wide { overflow: visible; }
  svg { min-width: 0; }
  .plots { display: block; }
  figure { margin: .6rem 0; }
  figure { break-inside: avoid; }
}
"""
