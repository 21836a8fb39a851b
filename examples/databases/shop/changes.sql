update orders set quantity = 3 where id = 1;
delete from orders where id = 2;
insert into orders values (4, 'dan', 'pen', 5, 1.50, now());
