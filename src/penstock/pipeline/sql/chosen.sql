-- Rows of some lanes.
SELECT rows.* FROM {rows} AS rows LEFT SEMI JOIN {wanted} AS wanted
ON rows.tube = wanted.tube AND rows.lane <=> wanted.lane
