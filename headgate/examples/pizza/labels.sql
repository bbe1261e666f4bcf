-- How long orders took, in minutes: what the model learns to predict.
-- A millisecond before an order, the store looks as it does to someone who is about to order.
SELECT
  o.store_id,
  o.event_time - INTERVAL 1 MILLISECOND AS at,
  c.event_time AS known_at,
  (unix_millis(c.event_time) - unix_millis(o.event_time)) / 60000.0 AS label
FROM pizza_orders_avro AS o
JOIN pizza_orders_completed_avro AS c
  ON c.store_id = o.store_id AND c.store_order_id = o.store_order_id
WHERE o.event_time IS NOT NULL AND c.event_time IS NOT NULL
