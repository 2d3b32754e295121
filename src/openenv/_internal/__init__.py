"""What several packages share and no user imports: no promise is made for anything in here.

Read `addresses` for what a text names, `net.http` for every HTTP request that we make, and
`lazy` for how packages load on first use.
"""
