import type { Principal } from '../domain/nouns.ts';
import type { Page, PageQuery } from '../domain/paging.ts';
import type { DeliveryState } from '../domain/webhook-endpoint.ts';
import type { AttemptRow, DeliveryRow } from '../store/webhook-deliveries.ts';
import type { EndpointRow } from '../store/webhook-endpoints.ts';

export type WebhookEndpoint = EndpointRow;
export type WebhookDelivery = DeliveryRow;
export type WebhookAttempt = AttemptRow;

export interface EndpointInput {
  url: string;
  /** Types of events; `*` = all. */
  events: string[];
  /** The host of the URL when left out. */
  name?: string;
  /** Only of this agent; of all when left out. */
  agentId?: string | null;
}

export interface EndpointWithSecret {
  endpoint: WebhookEndpoint;
  /** `whsec_` and base64; told once. */
  secret: string;
}

export interface DeliveryWithAttempts {
  delivery: WebhookDelivery;
  /** Oldest first. */
  attempts: WebhookAttempt[];
}

/** Every call needs an org-bound key with the scope `edit`. */
export interface WebhookEndpointsService {
  list(p: Principal, query: PageQuery): Promise<Page<WebhookEndpoint>>;
  get(p: Principal, id: string): Promise<WebhookEndpoint>;
  create(p: Principal, input: EndpointInput): Promise<EndpointWithSecret>;
  update(p: Principal, id: string, patch: Partial<EndpointInput>): Promise<WebhookEndpoint>;
  remove(p: Principal, id: string): Promise<void>;
  /** What happens from now on is told again, and what was held goes out. */
  enable(p: Principal, id: string): Promise<WebhookEndpoint>;
  /** Nothing is told any more; what was not sent yet is held. */
  disable(p: Principal, id: string): Promise<WebhookEndpoint>;
  /** Both secrets sign for a day, so that the receiver can change at leisure. */
  rotateSecret(p: Principal, id: string): Promise<EndpointWithSecret>;
  /** Sends it an event that tells of nothing. `conflict` when it is disabled. */
  test(p: Principal, id: string): Promise<WebhookDelivery>;
  deliveries(
    p: Principal,
    id: string,
    query: PageQuery,
    state: DeliveryState | null,
  ): Promise<Page<WebhookDelivery>>;
  delivery(p: Principal, id: string, deliveryId: string): Promise<DeliveryWithAttempts>;
  /** At once, whatever became of it. `conflict` when the endpoint is disabled or an attempt is under way. */
  retry(p: Principal, id: string, deliveryId: string): Promise<WebhookDelivery>;
  /** All that failed and whose event is not older; how many those are. */
  retrySince(p: Principal, id: string, since: Date): Promise<number>;
}
