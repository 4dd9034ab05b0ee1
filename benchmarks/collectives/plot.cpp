// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <map>
#include <sstream>

#include "../../examples/common/gnuplot.hpp"
#include "../../examples/common/text_format.hpp"

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
    Curve& curve = curves.of(name);
    curve.bandwidth += point(row, row.bus_bandwidth(*figure) / 1e9);
    curve.time += point(row, figure->time.median * 1e6);
    curve.limit += point(row, row.limit(*figure) / 1e9);
}

void add(Curves& curves, const std::string& name, const Row& row, const PeerTime& time) {
    Curve& curve = curves.of(name);
    curve.bandwidth += point(row, static_cast<double>(row.bytes) / time.seconds * row.bus_factor / 1e9);
    curve.time += point(row, time.seconds * 1e6);
}

}  // namespace

std::string plot_script(const Options& o, const std::vector<Row>& rows, const std::vector<PeerTime>& peers) {
    Curves curves;
    for (const Row& row : rows) {
        add(curves, name_of(row, o, ""), row, row.out_of_place);
        add(curves, name_of(row, o, ", in place"), row, row.in_place);
        for (const PeerTime& time : peers) {
            if (time.belongs_to(row)) { add(curves, time.peer + ": " + name_of(row, o, ""), row, time); }
        }
    }
    std::ostringstream data;
    std::ostringstream bandwidths;
    std::ostringstream times;
    std::size_t id = 0;
    for (const std::string& name : curves.names) {
        const char* const comma = id == 0 ? "" : ", ";
        ++id;
        const Curve& curve = curves.by_name[name];
        data << "$b" << id << " << EOD\n"
             << curve.bandwidth << "EOD\n$t" << id << " << EOD\n"
             << curve.time << "EOD\n";
        const auto line = [&](const char* style, const std::string& title) {
            return std::string(style) + " linecolor " + std::to_string(id) + " title " + program::gnuplot_text(title);
        };
        const bool is_peer = curve.limit.empty();
        const char* const style =
            is_peer ? " with linespoints linewidth 1 dashtype 3" : " with linespoints linewidth 2";
        bandwidths << comma << "$b" << id << line(style, name);
        if (!is_peer) {
            data << "$l" << id << " << EOD\n" << curve.limit << "EOD\n";
            bandwidths << ", $l" << id << line(" with lines dashtype 2", name + ", limit (copy)");
        }
        times << comma << "$t" << id << line(style, name);
    }
    const std::string title = "shardkit collectives on " +
                              std::string(engine_names[static_cast<std::size_t>(o.engine)]) + ", mesh " +
                              o.mesh.describe() + ", axis " + o.axes_text();
    std::ostringstream script;
    script << data.str() << "set multiplot layout 2,1 title " << program::gnuplot_text(title)
           << " noenhanced\nset key outside right noenhanced\nset lmargin 10\nset rmargin 44\nset grid\nset logscale "
              "x 2\n"
              "set format x '%.0b %BB'\nset xlabel 'size'\n"
              "set ylabel 'bus bandwidth (GB/s)'\nset yrange [0:*]\nplot "
           << bandwidths.str() << "\nset ylabel 'time of a call (us)'\nset yrange [*:*]\nset logscale y\nplot "
           << times.str() << "\nunset multiplot\n";
    return script.str();
}

}  // namespace benchmarks
