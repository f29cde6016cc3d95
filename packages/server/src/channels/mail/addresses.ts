/** The bare address out of `Name <local@host>` or `local@host`, lower-case; empty when there is none. */
export function bareAddress(text: string): string {
  const inner = /<([^<>]*)>\s*$/.exec(text.slice(-1_000))?.[1] ?? text;
  const bare = inner.trim().toLowerCase();
  return /^[^\s@<>",;]{1,64}@[^\s@<>",;]{1,255}$/.test(bare) ? bare : '';
}

export function displayName(text: string): string | null {
  const name = /^\s*"?([^"<]{1,200}?)"?\s*</.exec(text.slice(0, 1_000))?.[1];
  return name && name.trim() !== '' ? name.trim() : null;
}

/** The address without what stands behind a plus. */
export function unplussed(address: string): string {
  const at = address.lastIndexOf('@');
  const plus = address.indexOf('+');
  return plus > 0 && plus < at ? address.slice(0, plus) + address.slice(at) : address;
}

/** `agent+token@host` → `token`, when the rest is the channel's own address. */
export function plusToken(recipient: string, own: string): string | null {
  const [local = '', host = ''] = recipient.split('@');
  const [ownLocal = '', ownHost = ''] = own.split('@');
  const plus = local.indexOf('+');
  return plus > 0 && host === ownHost && local.slice(0, plus) === ownLocal ? local.slice(plus + 1) : null;
}

/** Message ids in a References or In-Reply-To header, in order (RFC 5322, section 3.6.4). */
export function messageIds(text: string): string[] {
  return [...text.slice(0, 20_000).matchAll(/<([^<>\s]{1,300})>/g)].slice(0, 100).map((found) => found[1]!);
}

/** Whether an address is on a list of addresses and `@domain` entries. */
export function isListed(address: string, list: string[]): boolean {
  const host = address.slice(address.lastIndexOf('@'));
  return list.some((entry) => {
    const wanted = entry.toLowerCase();
    return wanted === address || (wanted.startsWith('@') && wanted === host);
  });
}
