// SPDX-License-Identifier: Apache-2.0
// The peers' lines in the picture of the collectives: where they belong, and at what height.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "../../benchmarks/collectives/plot.hpp"

namespace {

using namespace benchmarks;

/// 4000 bytes between two ranks in 2 us, the copy in 1 us.
Row all_reduce_row() {
    Row row;
    row.verb = VerbKind::all_reduce;
    row.type = DataType::fp32;
    row.reduces = true;
    row.bytes = 4000;
    row.bus_factor = 1.5;
    row.out_of_place = Figure{{2e-6, 2e-6, 2e-6}, 1, 0, CopyFigure{4000, "memcpy", {1e-6, 1e-6, 1e-6}}};
    return row;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a peer's line has its time, and the bus bandwidth of that time; it has no limit") {
    const PeerTime peer{"openmpi", VerbKind::all_reduce, DataType::fp32, 4000, 8e-6};
    Options options;
    options.verbs = {VerbKind::all_reduce};
    const std::string script = plot_drawing(options, {all_reduce_row()}, {peer}).script;
    CHECK(has(script, "$b1 << EOD\n4000 3\nEOD\n$t1 << EOD\n4000 2\nEOD\n$l1 << EOD\n4000 6\nEOD\n"));
    CHECK(has(script, "$b2 << EOD\n4000 0.75\nEOD\n$t2 << EOD\n4000 8\nEOD\n"));
    CHECK(has(script, "'openmpi: all_reduce'"));
    CHECK(!has(script, "$l2"));
}

TEST_CASE("a peer's time belongs to a row of the same verb, type and size, and to sums") {
    const Row row = all_reduce_row();
    const PeerTime same{"peer", VerbKind::all_reduce, DataType::fp32, 4000, 1e-6};
    CHECK(same.belongs_to(row));
    const auto differs = [&](auto change) {
        PeerTime other = same;
        change(other);
        return !other.belongs_to(row) && !has(plot_drawing({}, {row}, {other}).script, "peer");
    };
    CHECK(differs([](PeerTime& time) { time.verb = VerbKind::all_gather; }));
    CHECK(differs([](PeerTime& time) { time.type = DataType::fp64; }));
    CHECK(differs([](PeerTime& time) { time.bytes = 4004; }));
    Row largest = row;
    largest.op = shardkit::ReduceOp::max;
    CHECK(!same.belongs_to(largest));
}
