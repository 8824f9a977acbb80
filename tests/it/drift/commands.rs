//! Commands on the data, by what they act on.

use super::Pair;

#[test]
fn the_demo_server_keeps_strings_as_redis_does() {
    let Some(mut pair) = Pair::new(1) else { return };
    pair.table(
        "get k
         set k v
         get k
         GeT k
         set k w nx
         set n w nx
         set m w xx
         set k x xx get
         set new x get
         get k
         set k '' px 100000
         get k
         ttl k
         set k y keepttl
         ttl k
         set k z ex 50 nx
         set k z
         ttl k
         set k z EX 50
         ttl k
         set k v px 0
         set k v px -1
         set k v px x
         set k v px
         set k v px 1.5
         set k v nx xx
         set k v nx nx
         set k v ex 10 px 10
         set k v keepttl px 10
         set k v px 4000000000000000
         set k v px 9223372036854775807
         set k v ex 9223372036854775807
         set k v what
         set k
         get
         get a b
         incr count
         incr count
         get count
         incrby count 5
         incrby count -9223372036854775808
         incrby count -9223372036854775808
         incrby count x
         incr k
         set odd ·1
         incr odd
         set odd 01
         incr odd
         set odd -0
         incr odd
         set odd +1
         incr odd
         set odd 9223372036854775807
         incr odd
         set odd -9223372036854775808
         incr odd
         rpush list a
         get list
         incr list
         set list v get
         set list v
         get list",
    );
}

#[test]
fn the_demo_server_treats_keys_as_redis_does() {
    let Some(mut pair) = Pair::new(1) else { return };
    pair.table(
        "exists k
         type k
         ttl k
         pttl k
         persist k
         pexpire k 100
         set k v
         ttl k
         pttl k
         persist k
         pexpire k 100000
         expire k 50
         ttl k
         persist k
         ttl k
         expire k x
         expire k 10 what
         pexpire k 9223372036854775807
         expire k 9223372036854775807
         pexpire k
         renamenx k k
         rename k k
         rename none k
         renamenx none k
         rename k l
         exists k l l
         set k v px 100000
         renamenx k l
         rename k l
         ttl l
         get l
         renamenx l free
         ttl free
         pexpire free 0
         exists free
         set free v
         pexpire free -5
         exists free
         del a b
         set a 1
         rpush b 1
         del a b a
         del
         rpush list a
         type list
         hset hash f v
         type hash
         zadd zset 1 a
         type zset
         sadd set a
         type set
         xadd stream 1-1 f v
         type stream
         set string v
         type string
         dbsize
         keys str?ng
         keys s*m
         keys nothing
         keys
         flushall what
         flushall sync
         dbsize
         flushall
         keys *",
    );
}

#[test]
fn the_demo_server_keeps_sorted_sets_as_redis_does() {
    let Some(mut pair) = Pair::new(1) else { return };
    pair.table(
        "zadd z 1 a
         zadd z nx 2 a 2 b
         zadd z 1764547200000000 c 1764547200000001 d
         zadd z 2 bb 2 ba
         zadd z 9007199254740991 e
         zadd z inf top -inf bottom
         zadd z xx 3 none
         zadd z xx 3 a
         zrange z 0 -1 withscores
         zrange z 0 0
         zrange z -1 -1 withscores
         zrange z -1 -1 WITHSCORES rev
         zrange z 0 0 rev withscores
         zrange z 1 2 rev
         zrange z 5 2
         zrange z -100 100
         zrange z 100 200
         zrange z 0 -100
         zrange z x 1
         zrange z 0 1 what
         zrange none 0 -1
         zrank z a
         zrank z bottom
         zrank z none
         zrank none a
         zscore z c
         zscore z top
         zscore z none
         zcard z
         zcard none
         zpopmin z
         zpopmin z 2
         zpopmin z 0
         zpopmin z -1
         zpopmin z x
         zpopmin none
         zpopmin none 3
         zrem z a none b
         zrem none a
         zrange z 0 -1
         zpopmin z 100
         exists z
         zadd z 1 a
         zrem z a
         exists z
         zadd z xx 1 a
         exists z
         zadd z x a
         zadd z nan a
         zadd z 1
         zadd z 1 a 2
         zadd z nx
         zadd z nx xx 1 a
         exists z
         set s v
         zadd s 1 a
         zrem s a
         zpopmin s
         zrank s a
         zrange s 0 -1
         zcard s",
    );
}

#[test]
fn the_demo_server_keeps_hashes_and_lists_as_redis_does() {
    let Some(mut pair) = Pair::new(1) else { return };
    pair.table(
        "hset h a 1 b 2
         hset h a 3 c 4
         hset h a
         hset h a 1 b
         hget h a
         hget h none
         hget none a
         hexists h a
         hexists h none
         hvals h
         hgetall h
         hlen h
         hdel h a none
         hgetall h
         hdel h b c
         exists h
         hdel h a
         hgetall h
         hset h '' ''
         hget h ''
         rpush l b c
         lpush l a x
         llen l
         lrange l 0 -1
         lrange l 1 2
         lrange l -2 100
         lrange l 5 9
         lrange l 3 1
         lrange l 0 -9
         lrange l 0 x
         lrange l 0
         lrange none 0 -1
         lpop l
         rpop l
         lpop l 0
         lpop l -1
         lpop l x
         rpop l 5
         lpop l
         lpop l 1
         lpop l 0
         exists l
         llen l
         set s v
         hset s a 1
         hget s a
         hdel s a
         hexists s a
         hvals s
         rpush s a
         lpop s
         rpop s 1
         llen s
         lrange s 0 -1
         sadd set b a b
         sadd set a
         sadd s a
         get set
         xadd x 1-1 f v
         xadd x 1-1 f v
         xadd x 0-0 f v
         xadd x q f v
         xadd x 2-0 f
         xadd x 2 f v g w
         xlen x
         xadd s 1-1 f v
         get x",
    );
}
