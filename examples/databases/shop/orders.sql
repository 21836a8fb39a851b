create table orders (
    id bigint primary key, customer text not null, item text, quantity int, price numeric(10, 2), placed timestamptz
);
insert into orders values (1, 'ann', 'book', 2, 12.50, now()), (2, 'bob', 'pen', 10, 1.50, now()), (3, 'eve', 'lamp', 1, 39.00, now());
