package binlog
