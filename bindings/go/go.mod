module moe

go 1.19
