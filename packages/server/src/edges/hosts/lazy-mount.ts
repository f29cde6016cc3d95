import type { HostMount } from './host-edge.ts';

/** What is known of a protocol before it is loaded. */
export interface LazyMount extends Pick<HostMount, 'name' | 'owns'> {
  /** Paths at which connections may be taken over. Absent: none. */
  upgrades?(path: string): boolean;
  /** Paths whose mount may answer without a key. Absent: none. */
  mayBePublic?: true;
  load(): Promise<HostMount>;
}

/**
 * A protocol whose code is loaded when it is asked for first: the SDKs take a tenth of the memory of a service that nobody
 * speaks to by them.
 */
export function lazyMount({ name, owns, upgrades, mayBePublic, load }: LazyMount): HostMount {
  let loaded: HostMount | null = null;
  let loading: Promise<void> | null = null;

  /** What could not be loaded is tried again with the next request. */
  const prepare = () =>
    (loading ??= load().then(
      (mount) => void (loaded = mount),
      (error: unknown) => {
        loading = null;
        throw error;
      },
    ));
  const ready = (): HostMount => {
    if (!loaded) throw new Error(`The mount "${name}" is asked before it is prepared.`);
    return loaded;
  };

  const mount: HostMount = {
    name,
    owns,
    prepare,
    handle: (call) => ready().handle(call),
    refuse: (error, requestId, asked) => loaded?.refuse?.(error, requestId, asked),
  };
  if (mayBePublic) {
    mount.isPublic = (method, path, agent) => ready().isPublic?.(method, path, agent) ?? false;
    mount.handlePublic = (call) => ready().handlePublic!(call);
  }
  if (upgrades) {
    mount.upgrade = {
      matches: upgrades,
      handle: (call) => ready().upgrade!.handle(call),
      close: () => loaded?.upgrade?.close(),
    };
  }
  return mount;
}
