"""The experiments of Wu and Tsai, ACM TECS 14(4), article 82, 2015."""
