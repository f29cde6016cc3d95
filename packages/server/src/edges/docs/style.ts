/** One style sheet for the pages without script: readable, light and dark, from phone to wide screen. */
export const style = `
:root{--bg:#fff;--fg:#1b1f24;--soft:#59636e;--line:#d9dee3;--card:#f6f8fa;--accent:#0a5bd3;--get:#0b6b3a;--post:#0a5bd3;--put:#8a5a00;--patch:#8a5a00;--delete:#b3261e}
@media (prefers-color-scheme:dark){:root{--bg:#0e1116;--fg:#e4e8ec;--soft:#9aa4af;--line:#2b323b;--card:#161b22;--accent:#6cb0ff;--get:#5fd394;--post:#6cb0ff;--put:#e3b341;--patch:#e3b341;--delete:#ff8b82}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:1rem}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
a{color:var(--accent);text-decoration:none}
a:hover,a:focus-visible{text-decoration:underline}
code,pre{font:.875em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{background:var(--card);border-radius:4px;padding:.1em .3em;overflow-wrap:anywhere}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.75rem 1rem;overflow-x:auto;margin:.5rem 0}
pre code{background:none;padding:0;overflow-wrap:normal}
.page{display:grid;grid-template-columns:17rem minmax(0,1fr);max-width:82rem;margin:0 auto}
nav{position:sticky;top:0;align-self:start;max-height:100vh;overflow-y:auto;padding:1.5rem 1rem 2rem 1.5rem;font-size:.875rem;border-right:1px solid var(--line)}
nav h2{font-size:.75rem;text-transform:uppercase;letter-spacing:.06em;color:var(--soft);margin:1.25rem 0 .25rem}
nav ul{list-style:none;margin:0;padding:0}
nav li a{display:block;padding:.15rem 0;color:var(--fg)}
main{padding:1.5rem 2rem 6rem;min-width:0}
main.narrow{max-width:46rem;margin:0 auto;padding-top:4rem}
h1{font-size:2rem;line-height:1.2;margin:.5rem 0 1rem}
h2{margin:3rem 0 .25rem;padding-top:1rem;border-top:1px solid var(--line)}
h3{margin:0 0 .25rem;font-size:1.125rem}
h4{margin:1rem 0 .25rem;font-size:.8125rem;text-transform:uppercase;letter-spacing:.05em;color:var(--soft)}
section.op{margin:1.5rem 0;padding:1.25rem 1.25rem 1rem;border:1px solid var(--line);border-radius:10px}
.call{font:600 .875rem/1.6 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
.verb{display:inline-block;min-width:4.2em;font-weight:700}
.get{color:var(--get)}.post{color:var(--post)}.put{color:var(--put)}.patch{color:var(--patch)}.delete{color:var(--delete)}
.soft{color:var(--soft)}
table{border-collapse:collapse;width:100%;font-size:.9rem}
td{border-top:1px solid var(--line);padding:.4rem .75rem .4rem 0;vertical-align:top}
td:first-child{width:14rem}
details{margin:.5rem 0}
summary{cursor:pointer;font-weight:600;font-size:.9rem}
.cards{display:grid;gap:.75rem;padding:0;list-style:none}
.cards a{display:block;border:1px solid var(--line);border-radius:10px;padding:.75rem 1rem;color:var(--fg)}
.cards b{color:var(--accent)}
@media (max-width:56rem){.page{display:block}nav{position:static;max-height:45vh;border-right:0;border-bottom:1px solid var(--line);padding:1rem}main{padding:1rem}td,td:first-child{display:block;width:auto}td+td{border-top:0;padding-top:0}}
`;
