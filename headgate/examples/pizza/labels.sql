-- What turned out to be true: for each completed order, the minutes from when it was placed.
SELECT
  o.store_id,
  o.event_time AS at,
  c.event_time AS known_at,
  (unix_millis(c.event_time) - unix_millis(o.event_time)) / 60000.0 AS label
FROM pizza_orders_avro AS o
JOIN pizza_orders_completed_avro AS c
  ON c.store_id = o.store_id AND c.store_order_id = o.store_order_id
