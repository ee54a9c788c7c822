-- What lives were put with, last.
SELECT lives.first, lives.pri, lives.lane, lives.key, events.data, events.body
FROM {lives} AS lives JOIN {events} AS events ON events.seq = lives.data_seq
