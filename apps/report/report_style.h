#pragma once
// SPDX-License-Identifier: MIT
//
// The look of the report. Curve colours are Okabe and Ito's, which readers with any kind of colour vision can
// tell apart; the dark set lightens those that would sink into the background.

namespace ab {

inline constexpr const char* kReportStyle = R"css(
:root { color-scheme: light dark;
  --paper: #fbfbfa; --card: #ffffff; --ink: #1c1e21; --soft: #62676e; --line: #e3e4e6; --band: #0072b2;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #b88600; --c5: #3d9fd3; --c6: #555a60; --c7: #8a5ac2; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #15171a; --card: #1e2125; --ink: #e8e9eb; --soft: #9da3ab; --line: #33373d; --band: #56b4e9;
  --c0: #56b4e9; --c1: #f0803c; --c2: #2fc79a; --c3: #e59bc5; --c4: #f0c040; --c5: #9fd4f5; --c6: #b6bbc2; --c7: #b79af0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.2rem 1.4rem 4rem; max-width: 84rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { margin: 0; font-size: 1.9rem; letter-spacing: -.02em; } h2 { margin: 0; font-size: 1.05rem; }
header p { margin: .2rem 0 1.6rem; color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 1rem; margin-bottom: 1rem; }
article, figure, .wide { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
article { padding: 1rem 1.2rem; border-top: 4px solid currentColor; }
article > * { color: var(--ink); }
.what { margin: 0; color: var(--soft); font-size: .85rem; }
.big { margin: .5rem 0 .6rem; font-size: 2rem; font-weight: 650; letter-spacing: -.02em; }
.big small { margin-left: .45rem; font-size: .85rem; font-weight: 400; letter-spacing: 0; color: var(--soft); }
dl { display: grid; grid-template-columns: 1fr auto; gap: .15rem .8rem; margin: 0; font-size: .88rem; }
dt { color: var(--soft); } dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem; align-items: start; }
figure { margin: 0; padding: 1rem 1.1rem .4rem; min-width: 0; }
figcaption { font-weight: 600; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
.none { color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: .15rem 0 .2rem; font-size: .84rem; color: var(--soft); }
.legend i { display: inline-block; width: 1.1em; margin-right: .4em; border-top: 3px solid currentColor; vertical-align: middle; }
.legend i.dashed { border-top-style: dashed; }
.grid { stroke: var(--line); stroke-width: 1; }
.tick, .axis { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
.axis { font-size: 12.5px; fill: var(--ink); }
.curve { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.curve.dashed { stroke-dasharray: 6 4; }
.hit { fill: transparent; } .dot { fill: currentColor; opacity: 0; } .dot.shown, .point:hover .dot { opacity: 1; }
.frontier { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 2 3; }
.range { stroke: currentColor; stroke-width: 2; } .dominated { color: var(--soft); opacity: .55; }
.fill { fill: currentColor; stroke: var(--card); stroke-width: 1; } .fill.dashed { fill-opacity: .55; }
.band { fill: var(--band); } .inside { font-size: 11px; fill: var(--ink); }
.k0 { color: var(--c0); } .k1 { color: var(--c1); } .k2 { color: var(--c2); } .k3 { color: var(--c3); }
.k4 { color: var(--c4); } .k5 { color: var(--c5); } .k6 { color: var(--c6); } .k7 { color: var(--c7); }
.wide { margin-top: 1rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .65rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } tr:last-child td { border-bottom: 0; }
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; }
@media print { body { max-width: none; } figure, article { break-inside: avoid; } }
)css";

}  // namespace ab
