R"gnuplot(
# The look of every chart: gnuplot.hpp includes this file as a text, benchmarks/charts/gnuplot.py reads it without its
# first and last line. The first eight colours: Okabe and Ito, Color Universal Design; points tell lines apart without colours, too.
set encoding utf8
as_svg = "svg noenhanced font 'sans-serif,13' background '#ffffff'"
as_png = "pngcairo noenhanced font 'sans-serif,10' background '#ffffff'"
set linetype 1 linecolor rgb '#0072b2' linewidth 2 pointtype 7
set linetype 2 linecolor rgb '#d55e00' linewidth 2 pointtype 5
set linetype 3 linecolor rgb '#009e73' linewidth 2 pointtype 9
set linetype 4 linecolor rgb '#cc79a7' linewidth 2 pointtype 11
set linetype 5 linecolor rgb '#e69f00' linewidth 2 pointtype 13
set linetype 6 linecolor rgb '#56b4e9' linewidth 2 pointtype 6
set linetype 7 linecolor rgb '#555555' linewidth 2 pointtype 4
set linetype 8 linecolor rgb '#7a4a1e' linewidth 2 pointtype 8
set linetype 9 linecolor rgb '#6a3d9a' linewidth 2 pointtype 12
set linetype 10 linecolor rgb '#a50f3c' linewidth 2 pointtype 10
set linetype 11 linecolor rgb '#8a8a00' linewidth 2 pointtype 3
set linetype 12 linecolor rgb '#00c5c5' linewidth 2 pointtype 2
set linetype cycle 12
set pointsize 0.6
set border 31 linecolor rgb '#888888' linewidth 1
set grid xtics ytics linetype -1 linecolor rgb '#dddddd' linewidth 1
set tics nomirror textcolor rgb '#222222'
set mxtics 1
set mytics 1
set style fill solid 1.0 noborder
unset key
)gnuplot"
