-- q0 pass through
SELECT auction, bidder, price, date_time, extra FROM bid;
-- q1 currency conversion
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid;
-- q2 selection
SELECT auction, price FROM bid WHERE auction % 7 = 0;
-- q3 local item suggestion
SELECT P.name, P.city, P.state, A.id
FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA');
-- q4 average price for a category
SELECT Q.category, avg(Q.final) AS average
FROM (
  SELECT max(B.price) AS final, A.category
  FROM auction A, bid B
  WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
  GROUP BY A.id, A.category) Q
GROUP BY Q.category;
-- q5 hot items
SELECT AuctionBids.auction, AuctionBids.num
FROM (
  SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime
  FROM HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND)
  GROUP BY auction, window_start, window_end) AS AuctionBids
JOIN (
  SELECT max(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime
  FROM (
    SELECT count(*) AS num, window_start AS starttime, window_end AS endtime
    FROM HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    GROUP BY auction, window_start, window_end) AS CountBids
  GROUP BY CountBids.starttime, CountBids.endtime) AS MaxBids
ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
  AND AuctionBids.num >= MaxBids.maxn;
-- q6 average selling price by seller, of the last ten auctions; Flink's form of it is a moving average over rows
SELECT seller, avg(final) AS average
FROM (
  SELECT seller, final, row_number() OVER (PARTITION BY seller ORDER BY closed DESC, id) AS rn
  FROM (
    SELECT A.seller, A.id, max(B.price) AS final, max(B.date_time) AS closed
    FROM auction A, bid B
    WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
    GROUP BY A.seller, A.id) sold) ranked
WHERE rn <= 10
GROUP BY seller;
-- q7 highest bid of each window
SELECT B.auction, B.price, B.bidder, B.date_time, B.extra
FROM bid B
JOIN (
  SELECT max(price) AS maxprice, window_end AS endtime
  FROM TUMBLE(bid, date_time, INTERVAL '10' SECOND)
  GROUP BY window_start, window_end) B1
ON B.price = B1.maxprice
WHERE B.date_time BETWEEN B1.endtime - INTERVAL '10' SECOND AND B1.endtime;
-- q8 monitor new users
SELECT P.id, P.name, P.starttime
FROM (
  SELECT id, name, window_start AS starttime, window_end AS endtime
  FROM TUMBLE(person, date_time, INTERVAL '10' SECOND)
  GROUP BY id, name, window_start, window_end) P
JOIN (
  SELECT seller, window_start AS starttime, window_end AS endtime
  FROM TUMBLE(auction, date_time, INTERVAL '10' SECOND)
  GROUP BY seller, window_start, window_end) A
ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime;
-- q9 winning bids; with the bid's id, because the price and the time may be equal
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra, auction, bidder,
  price, bid_date_time, bid_extra
FROM (
  SELECT A.*, B.auction, B.bidder, B.price, B.date_time AS bid_date_time, B.extra AS bid_extra,
    ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.date_time ASC, B.id ASC) AS rownum
  FROM auction A, bid B
  WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires) ranked
WHERE rownum <= 1;
-- q10 log to files: the rows, with what their files are partitioned by
SELECT auction, bidder, price, date_time, extra, CAST(date_time AS DATE) AS dt, hour(date_time) AS h,
  minute(date_time) AS m
FROM bid;
-- q11 user sessions
SELECT bidder, count(*) AS bid_count, session_window.start AS starttime, session_window.end AS endtime
FROM bid
GROUP BY bidder, session_window(date_time, '2 seconds');
-- q11 duckdb
SELECT bidder, count(*), min(date_time), max(date_time) + INTERVAL 2 SECOND
FROM (
  SELECT *, sum(starts) OVER (PARTITION BY bidder ORDER BY date_time RANGE UNBOUNDED PRECEDING) AS session
  FROM (
    SELECT *, CASE WHEN date_time <= before + INTERVAL 2 SECOND THEN 0 ELSE 1 END AS starts
    FROM (SELECT *, lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) AS before FROM bid)))
GROUP BY bidder, session;
-- q12 windows of processing time: a view is a function of its rows, so the time of arrival is a column
SELECT bidder, count(*) AS bid_count, window.start AS starttime, window.end AS endtime
FROM bid
GROUP BY bidder, window(arrived, '10 seconds');
-- q12 duckdb
SELECT bidder, count(*), time_bucket(INTERVAL 10 SECOND, arrived),
  time_bucket(INTERVAL 10 SECOND, arrived) + INTERVAL 10 SECOND
FROM bid
WHERE arrived IS NOT NULL
GROUP BY ALL;
-- q13 bounded side input: a table like any other
SELECT B.auction, B.bidder, B.price, B.date_time, S.value
FROM bid AS B JOIN side AS S ON B.auction % 10 = S.key;
-- q14 calculation: the function count_char as an expression
SELECT auction, bidder, 0.908 * price AS price,
  CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 THEN 'dayTime'
    WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
  date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000 AND 0.908 * price < 50000000;
-- q15 bidding statistics report
SELECT CAST(date_time AS DATE) AS day, count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  count(DISTINCT auction) AS total_auctions,
  count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY CAST(date_time AS DATE);
-- q16 channel statistics report; the last minute as a number
SELECT channel, CAST(date_time AS DATE) AS day, max(hour(date_time) * 60 + minute(date_time)) AS minute,
  count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  count(DISTINCT auction) AS total_auctions,
  count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY channel, CAST(date_time AS DATE);
-- q17 auction statistics report
SELECT auction, CAST(date_time AS DATE) AS day, count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bid
GROUP BY auction, CAST(date_time AS DATE);
-- q18 find last bid
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, id) AS rank_number
  FROM bid) ranked
WHERE rank_number <= 1;
-- q19 auction top ten
SELECT *
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, id) AS rank_number
  FROM bid) ranked
WHERE rank_number <= 10;
-- q20 expand bid with auction
SELECT auction, bidder, price, channel, url, B.date_time, B.extra, item_name, description, initial_bid, reserve,
  A.date_time AS auction_date_time, expires, seller, category, A.extra AS auction_extra
FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id
WHERE A.category = 10;
-- q21 add channel id; the regular expression as a search for its fixed part
SELECT auction, bidder, price, channel,
  CASE WHEN channel = 'Apple' THEN '0' WHEN channel = 'Google' THEN '1' WHEN channel = 'Facebook' THEN '2'
    WHEN channel = 'Baidu' THEN '3' ELSE split_part(split_part(url, 'channel_id=', 2), '&', 1) END AS channel_id
FROM bid
WHERE contains(url, 'channel_id=') OR channel IN ('Apple', 'Google', 'Facebook', 'Baidu');
-- q22 get URL directories
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
  split_part(url, '/', 6) AS dir3
FROM bid;
