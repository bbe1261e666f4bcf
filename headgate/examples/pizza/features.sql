-- What is known about a store at a moment: its open orders, its last waits, and how fast it works.
-- Each table has only the rows of one store in the window before `moment`.
WITH orders AS (
  SELECT
    o.store_order_id,
    o.event_time AS ordered_at,
    (unix_millis(moment) - unix_millis(o.event_time)) / 60000.0 AS age,
    aggregate(transform(o.order_lines, l -> l.quantity), 0, (a, q) -> a + q) AS items,
    aggregate(transform(filter(o.order_lines, l -> l.category <> 'salad'), l -> l.quantity),
      0, (a, q) -> a + q) AS baked
  FROM pizza_orders_avro AS o
),
open AS (
  SELECT
    count(*) AS open_orders,
    sum(items) AS open_items,
    sum(baked) AS open_baked,
    max(age) AS oldest_age,
    avg(age) AS mean_age,
    count_if(age > 15) AS open_over_15,
    count_if(age > 30) AS open_over_30
  FROM orders AS o
  LEFT JOIN pizza_orders_completed_avro AS c ON c.store_order_id = o.store_order_id
  LEFT JOIN pizza_orders_cancelled_avro AS x ON x.store_order_id = o.store_order_id
  WHERE c.store_order_id IS NULL AND x.store_order_id IS NULL
),
arrived AS (
  SELECT
    count_if(age <= 10) AS orders_10,
    count_if(age <= 30) AS orders_30,
    count_if(age <= 60) AS orders_60,
    sum(CASE WHEN age <= 30 THEN items END) AS items_ordered_30
  FROM orders
),
completed AS (
  SELECT
    (unix_millis(moment) - unix_millis(c.event_time)) / 60000.0 AS ended,
    (unix_millis(c.event_time) - unix_millis(o.ordered_at)) / 60000.0 AS wait,
    o.items,
    o.baked,
    row_number() OVER (ORDER BY c.event_time DESC, c.store_order_id DESC) AS place
  FROM pizza_orders_completed_avro AS c
  JOIN orders AS o ON o.store_order_id = c.store_order_id
),
waits AS (
  SELECT
    max(CASE WHEN place = 1 THEN wait END) AS last_wait,
    avg(CASE WHEN place <= 3 THEN wait END) AS mean_wait_3,
    avg(CASE WHEN place <= 10 THEN wait END) AS mean_wait_10,
    avg(CASE WHEN place <= 20 THEN wait END) AS mean_wait_20,
    min(ended) AS idle,
    count_if(ended <= 10) AS completed_10,
    count_if(ended <= 30) AS completed_30,
    count_if(ended <= 60) AS completed_60,
    sum(CASE WHEN ended <= 15 THEN items END) AS items_completed_15,
    sum(CASE WHEN ended <= 30 THEN items END) AS items_completed_30,
    sum(CASE WHEN ended <= 30 THEN baked END) AS baked_30,
    sum(CASE WHEN ended <= 60 THEN baked END) AS baked_60
  FROM completed
),
cancelled AS (
  SELECT
    count_if(event_time > moment - INTERVAL 10 MINUTES) AS cancelled_10,
    count_if(event_time > moment - INTERVAL 30 MINUTES) AS cancelled_30,
    count_if(event_time > moment - INTERVAL 60 MINUTES) AS cancelled_60
  FROM pizza_orders_cancelled_avro
)
SELECT
  hour(moment) + minute(moment) / 60.0 AS hour_of_day,
  weekday(moment) * 1440 + hour(moment) * 60 + minute(moment) AS minute_of_week,
  open_orders, open_items, open_baked, oldest_age, mean_age, open_over_15, open_over_30,
  orders_10, orders_30, orders_60, items_ordered_30,
  last_wait, mean_wait_3, mean_wait_10, mean_wait_20, idle,
  completed_10, completed_30, completed_60,
  items_completed_15, items_completed_30, baked_30, baked_60,
  cancelled_10, cancelled_30, cancelled_60
FROM open
CROSS JOIN arrived
CROSS JOIN waits
CROSS JOIN cancelled
