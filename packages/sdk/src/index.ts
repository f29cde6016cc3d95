export { createClient, everyItem } from './client.ts';
export type { BerthClient, ListOptions, Page, SendInput, SendOptions } from './client.ts';
export type { ClientOptions } from './http.ts';
export { BerthError } from './errors.ts';
export { apply, emptyView } from './derive.ts';
export type { ToolSpan, View } from './derive.ts';
export type { FollowOptions } from './streams.ts';
export type * from './types.ts';
