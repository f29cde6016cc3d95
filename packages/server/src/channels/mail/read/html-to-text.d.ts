/** The package has no types of its own; this is the part that we use (html-to-text 10, README). */
declare module 'html-to-text' {
  interface SelectorRule {
    selector: string;
    format?: string;
    options?: Record<string, unknown>;
  }
  interface ConvertOptions {
    wordwrap?: number | false;
    limits?: {
      maxInputLength?: number;
      maxDepth?: number;
      maxChildNodes?: number;
      maxBaseElements?: number;
      ellipsis?: string;
    };
    selectors?: SelectorRule[];
  }
  export function convert(html: string, options?: ConvertOptions): string;
}
