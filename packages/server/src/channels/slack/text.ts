/** Slack's own markup as plain text: entities, links, mentions (docs.slack.dev, "Formatting message text"). */
export function plainText(markup: string, botUserId: string | null): string {
  const own = botUserId === null ? null : `<@${botUserId}>`;
  // The mention that addresses the agent is no part of what is said to it.
  const said =
    own !== null && markup.trimStart().startsWith(own) ? markup.trimStart().slice(own.length) : markup;
  return said
    .replace(/<([^<>\n]{1,3000})>/g, (_, inner: string) => readAngle(inner))
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&')
    .trim();
}

function readAngle(inner: string): string {
  const bar = inner.indexOf('|');
  const target = bar === -1 ? inner : inner.slice(0, bar);
  const label = bar === -1 ? null : inner.slice(bar + 1);
  if (target.startsWith('@')) return `@${label ?? target.slice(1)}`;
  if (target.startsWith('#')) return `#${label ?? target.slice(1)}`;
  if (target.startsWith('!')) return label ?? `@${target.slice(1).split('^')[0]}`;
  return label === null || label === target ? target : `${label} (${target})`;
}
