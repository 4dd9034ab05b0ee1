// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>

#include "../../examples/common/text_format.hpp"
#include "../common/plot_range.hpp"

namespace benchmarks {

namespace {

/// Lines of "x y" for gnuplot.
struct Curve {
    std::string bandwidth;
    std::string limit;  // empty: a peer's
    std::string time;
};

/// In the order in which they were measured.
struct Curves {
    std::vector<std::string> names;
    std::map<std::string, Curve> by_name;
    LogRange sizes;
    LogRange times;
    bool moves = false;  // whether any bus bandwidth is above 0: one rank alone has none

    Curve& of(const std::string& name) {
        if (!by_name.contains(name)) { names.push_back(name); }
        return by_name[name];
    }
};

std::string name_of(const Row& row, const Options& o, const char* placement) {
    std::string name(verb_names[static_cast<std::size_t>(row.verb)]);
    if (o.types.size() > 1) { name.append(" ").append(type_names[static_cast<std::size_t>(row.type)]); }
    if (row.reduces && o.ops.size() > 1) { name.append(" ").append(op_names[static_cast<std::size_t>(row.op)]); }
    return name + placement;
}

std::string point(const Row& row, double y) {
    return program::formatted("%llu %.6g\n", static_cast<unsigned long long>(row.bytes), y);
}

void add(Curves& curves, const std::string& name, const Row& row, const std::optional<Figure>& figure) {
    if (!figure || !Row::moves(*figure)) { return; }
    curves.sizes.add(static_cast<double>(row.bytes));
    curves.times.add(figure->time.median * 1e6);
    curves.moves = curves.moves || row.bus_factor > 0;
    Curve& curve = curves.of(name);
    curve.bandwidth += point(row, row.bus_bandwidth(*figure) / 1e9);
    curve.time += point(row, figure->time.median * 1e6);
    curve.limit += point(row, row.limit(*figure) / 1e9);
}

void add(Curves& curves, const std::string& name, const Row& row, const PeerTime& time) {
    curves.times.add(time.seconds * 1e6);
    Curve& curve = curves.of(name);
    curve.bandwidth += point(row, static_cast<double>(row.bytes) / time.seconds * row.bus_factor / 1e9);
    curve.time += point(row, time.seconds * 1e6);
}

constexpr int legend_line = 18;  // pixels
constexpr int letter = 8;        // at most, of the legend
constexpr int plot_left = 80;
constexpr int plot_right = 840;
constexpr int sample = 40;  // of a line in the legend

/// Where the two plots lie, and right of them the legend: its names need as much room as there are of them.
struct Layout {
    int width;
    int height;

    explicit Layout(const std::vector<std::string>& names) {
        std::size_t longest = limit_name.size();
        for (const std::string& name : names) { longest = std::max(longest, name.size()); }
        width = plot_right + 30 + sample + 10 + letter * static_cast<int>(longest) + 20;
        height = std::max(900, 80 + legend_line * static_cast<int>(names.size() + 1));
    }
    double x(int pixels) const { return static_cast<double>(pixels) / width; }
    double y(int pixels) const { return 1 - static_cast<double>(pixels) / height; }

    std::string margins(int top, int bottom) const {
        return program::formatted(
            "set lmargin at screen %.5f\nset rmargin at screen %.5f\nset tmargin at screen %.5f\n"
            "set bmargin at screen %.5f\n",
            x(plot_left), x(plot_right), y(top), y(bottom));
    }
    /// A line of the legend: how the curve looks, and its name.
    std::string entry(std::size_t number, const std::string& style, const std::string& point,
                      const std::string& name) const {
        const double at = y(70 + legend_line * static_cast<int>(number));
        const int left = plot_right + 30;
        std::string text = program::formatted("set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead ", x(left),
                                              at, x(left + sample), at) +
                           style + "\n";
        if (!point.empty()) {
            text += program::formatted("set label '' at screen %.5f,%.5f point ", x(left + sample / 2), at) + point +
                    "\n";
        }
        return text + program::formatted("set label %s at screen %.5f,%.5f noenhanced\n",
                                         program::gnuplot_text(name).c_str(), x(left + sample + 10), at);
    }

    static constexpr std::string_view limit_name = "dashed: limit (copy)";
};

}  // namespace

program::Drawing plot_drawing(const Options& o, const std::vector<Row>& rows, const std::vector<PeerTime>& peers) {
    Curves curves;
    for (const Row& row : rows) {
        add(curves, name_of(row, o, ""), row, row.out_of_place);
        add(curves, name_of(row, o, ", in place"), row, row.in_place);
        for (const PeerTime& time : peers) {
            if (time.belongs_to(row)) { add(curves, time.peer + ": " + name_of(row, o, ""), row, time); }
        }
    }
    const Layout layout(curves.names);
    std::ostringstream data;
    std::ostringstream bandwidths;
    std::ostringstream times;
    std::ostringstream legend;
    std::size_t id = 0;
    for (const std::string& name : curves.names) {
        const char* const comma = id == 0 ? "" : ", ";
        ++id;
        const Curve& curve = curves.by_name[name];
        const bool is_peer = curve.limit.empty();
        const std::string colour = " linecolor " + std::to_string(id);
        const std::string style = colour + (is_peer ? " linewidth 1 dashtype 3" : " linewidth 2");
        const std::string point = " pointtype " + std::to_string(id);
        data << "$b" << id << " << EOD\n"
             << curve.bandwidth << "EOD\n$t" << id << " << EOD\n"
             << curve.time << "EOD\n";
        bandwidths << comma << "$b" << id << " with linespoints" << style << point;
        if (!is_peer) {
            data << "$l" << id << " << EOD\n" << curve.limit << "EOD\n";
            bandwidths << ", $l" << id << " with lines dashtype 2" << colour;
        }
        times << comma << "$t" << id << " with linespoints" << style << point;
        legend << layout.entry(id - 1, style, point + colour, name);
    }
    legend << layout.entry(id, "dashtype 2 linecolor 'black'", "", std::string(Layout::limit_name));
    const std::string title = "shardkit collectives on " +
                              std::string(engine_names[static_cast<std::size_t>(o.engine)]) + ", mesh " +
                              o.mesh.describe() + ", axis " + o.axes_text();
    const int middle = layout.height / 2;
    std::ostringstream script;
    script << data.str() << "set multiplot title " << program::gnuplot_text(title)
           << " noenhanced\nunset key\nset grid\nset logscale x 2\nset format x '%.0b %BB'\nset xlabel 'size'\n"
           << "set xrange " << curves.sizes.text() << "\n"
           << layout.margins(50, middle - 50) << "set ylabel 'bus bandwidth (GB/s)'\nset yrange "
           << (curves.moves ? "[0:*]" : "[0:1]") << "\n"
           << legend.str() << "plot " << bandwidths.str() << "\nunset arrow\nunset label\n"
           << layout.margins(middle + 20, layout.height - 60) << "set ylabel 'time of a call (us)'\nset logscale y\n"
           << "set yrange " << curves.times.text() << "\nplot " << times.str() << "\nunset multiplot\n";
    return {layout.width, layout.height, script.str()};
}

}  // namespace benchmarks
