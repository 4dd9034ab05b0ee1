// SPDX-License-Identifier: Apache-2.0
// concepts FOLDER: draws the documentation's small pictures of one idea each, from what the library itself computes.
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/context_parallel/causal_chunks.hpp>
#include <shardkit/plan.hpp>
#include <shardkit/shardkit.hpp>

#include "colours.hpp"
#include "step.hpp"
#include "svg.hpp"

namespace {

namespace sk = shardkit;
using namespace mesh_picture;

constexpr double margin = 16;

std::string text_of(std::size_t value) { return std::to_string(value); }

/// A group's flat buffer on three shards: parameters, padding between them and at the end, and the cuts.
std::string layout() {
    struct Part {
        const char* name;
        std::size_t numel;
    };
    constexpr std::array<Part, 3> parts{{{"weight", 100}, {"bias", 7}, {"norm", 40}}};
    constexpr std::size_t shards = 3;
    sk::layout::FlatLayout flat(shards, sk::layout::alignment_for(sizeof(float)));
    std::vector<sk::IndexRange> ranges;
    for (const Part& part : parts) { ranges.push_back(flat.append(part.numel)); }

    Svg svg;
    const double unit = 568.0 / static_cast<double>(flat.buffer_numel()), top = 54, height = 40;
    const auto x = [&](std::size_t element) { return margin + unit * static_cast<double>(element); };
    const auto bar = [&](const sk::IndexRange& range, const std::string& look) {
        svg.rectangle({x(range.begin), top, unit * static_cast<double>(range.size()), height}, look);
    };
    bar({0, flat.buffer_numel()}, fill(shade) + " stroke=\"" + std::string(faint) + "\"");
    for (std::size_t p = 0; p < parts.size(); ++p) {
        bar(ranges[p], fill(colour_of_tp(p), "0.75"));
        const double middle = (x(ranges[p].begin) + x(ranges[p].end)) / 2;
        svg.text(middle, top - 8, parts[p].name + std::string(" [") + text_of(parts[p].numel) + "]",
                 {12, ink, "middle"});
    }
    for (std::size_t s = 0; s < shards; ++s) {
        const sk::IndexRange shard = flat.shard(s);
        svg.rectangle({x(shard.begin), top, unit * static_cast<double>(shard.size()), height}, outline(ink, "2"));
        svg.text((x(shard.begin) + x(shard.end)) / 2, top + height + 20,
                 "shard " + text_of(s) + ": " + text_of(shard.begin) + " to " + text_of(shard.end),
                 {12, ink, "middle"});
    }
    svg.text(margin, 24, "A group's flat buffer: grey is padding, frames are the shards", {13, ink, "start", true});
    return svg.finish(600, 130, "Flat buffer of three parameters on three shards");
}

/// Sixteen ranks on two nodes under HybridShard<8>: who gathers, and who reduces across.
std::string hybrid() {
    constexpr std::size_t dp = 16;
    constexpr std::size_t shards = sk::HybridShard<8>::shard_group(dp);
    const sk::AxisGrid grid({{sk::DpReplicate::name, dp / shards}, {sk::DpShard::name, shards}});
    Svg svg;
    svg.text(margin, 24, "HybridShard&lt;8&gt; on two nodes of eight ranks", {13, ink, "start", true});
    const auto x = [](std::size_t in_node) { return margin + 66 + 62 * static_cast<double>(in_node); };
    const auto y = [](std::size_t node) { return 44 + 108 * static_cast<double>(node); };
    for (std::size_t rank = 0; rank < dp; ++rank) {
        const std::array<std::string_view, 1> over_shards{sk::DpShard::name}, over_replicas{sk::DpReplicate::name};
        const sk::RankGroup shard_group = grid.group(over_shards, rank), replicas = grid.group(over_replicas, rank);
        const std::size_t node = shard_group.color() / shards, shard = shard_group.index();
        if (shard == 0) {
            svg.rectangle({margin, y(node), 568, 64}, fill(shade) + " stroke=\"" + std::string(faint) + "\"");
            svg.text(margin + 8, y(node) + 37, "node " + text_of(node), {12, grey});
        }
        svg.rectangle({x(shard), y(node) + 10, 54, 44}, fill(colour_of_tp(shard), "0.4"));
        svg.text(x(shard) + 27, y(node) + 29, "rank " + text_of(rank), {11, ink, "middle"});
        svg.text(x(shard) + 27, y(node) + 44, "shard " + text_of(shard), {11, ink, "middle"});
        for (std::size_t other = 0; other < replicas.size(); ++other) {
            const std::size_t peer = replicas.member(other);
            if (peer > rank) {
                svg.line(x(shard) + 27, y(node) + 64, x(shard) + 27, y(peer / shards),
                         "stroke=\"" + std::string(grey) + "\" stroke-width=\"2\"");
            }
        }
    }
    svg.text(margin, 242, "In a node, every microbatch: all-gather of parameters, reduce-scatter of gradients.",
             {12, ink});
    svg.text(margin, 260, "Lines, once a step: all-reduce of a shard's gradients with the other node.", {12, ink});
    return svg.finish(600, 276, "Groups of HybridShard over two nodes");
}

template <class Policy>
sk::planner::MemoryPlan memory_of(const sk::AxisGrid& mesh) {
    struct Block : sk::Param<"block", float, 4096, 3072> {};
    std::array<sk::planner::GroupDescription, 32> model{};
    for (auto& group : model) { group = sk::describe_group<Block, Policy>("block", {}, mesh, Policy{}); }
    return sk::plan(model, mesh).memory;
}

/// Peak bytes per parameter under each policy, by kind, as the planner has them.
std::string memory() {
    const sk::AxisGrid mesh = sk::DeviceMesh<8>{}.grid();
    struct Row {
        std::string_view name;
        sk::planner::MemoryPlan plan;
    };
    const std::array<Row, 5> rows{{{"NoShard", memory_of<sk::NoShard>(mesh)},
                                   {"ShardOptimizer", memory_of<sk::ShardOptimizer>(mesh)},
                                   {"ShardGradOp", memory_of<sk::ShardGradOp>(mesh)},
                                   {"FullShard", memory_of<sk::FullShard>(mesh)},
                                   {"HybridShard<4>", memory_of<sk::HybridShard<4>>(mesh)}}};
    constexpr double numel = 32.0 * 4096 * 3072, scale = 24;
    Svg svg;
    svg.text(margin, 24, "Bytes per parameter on each of 8 ranks: 32 equal groups, fp32, AdamW",
             {13, ink, "start", true});
    const std::array<const char*, 4> kinds{"parameters", "gradients", "optimizer", "leased buffers"};
    double at = margin;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
        svg.rectangle({at, 38, 12, 12}, fill(colour_of_tp(k), "0.85"));
        svg.text(at + 18, 48, kinds[k], {12, ink});
        at += 34 + 7 * static_cast<double>(std::string_view(kinds[k]).size());
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
        const sk::planner::MemoryPlan& plan = rows[r].plan;
        const double y = 64 + 30 * static_cast<double>(r);
        const std::string name =
            rows[r].name == "HybridShard<4>" ? "HybridShard&lt;4&gt;" : std::string(rows[r].name);
        svg.text(margin, y + 15, name, {12, ink});
        double x = 130;
        const sk::ByteCount leased = plan.gather_buffers + plan.gradient_buffers + plan.reduce_buffers;
        const std::array<sk::ByteCount, 4> bytes{plan.parameters + plan.master, plan.gradients, plan.optimizer,
                                                 leased};
        for (std::size_t k = 0; k < bytes.size(); ++k) {
            const double width = scale * static_cast<double>(bytes[k].value) / numel;
            svg.rectangle({x, y, width, 20}, fill(colour_of_tp(k), "0.85"));
            x += width;
        }
        svg.text(x + 8, y + 15, Svg::number(static_cast<double>(plan.total().value) / numel), {12, ink});
    }
    return svg.finish(600, 222, "Memory per policy");
}

/// Which rank of cp computes which pairs of queries and keys.
std::string chunks() {
    constexpr std::size_t cp = 4, sequence = 64;
    std::array<std::size_t, 2 * cp> owner{};
    std::array<std::size_t, cp> pairs{};
    std::size_t tokens = 0;
    for (std::size_t rank = 0; rank < cp; ++rank) {
        const auto mine = sk::cp::CausalChunks::of(sequence, cp, rank);
        tokens = mine.chunk();
        for (std::size_t c = 0; c < mine.count(); ++c) { owner[mine.number(c)] = rank; }
        for (std::size_t i = 0; i < mine.tokens(); ++i) { pairs[rank] += mine.position(i) + 1; }
    }
    Svg svg;
    constexpr double cell = 26, top = 64, left = 104;
    svg.text(margin, 24, "A causal sequence in " + text_of(2 * cp) + " chunks over cp = " + text_of(cp),
             {13, ink, "start", true});
    svg.text(left, 52, "keys", {12, grey});
    svg.text(left - 8, 52, "queries", {12, grey, "end"});
    for (std::size_t q = 0; q < owner.size(); ++q) {
        const double y = top + cell * static_cast<double>(q);
        svg.text(left - 8, y + 18, "rank " + text_of(owner[q]), {11, ink, "end"});
        for (std::size_t k = 0; k < owner.size(); ++k) {
            const sk::IndexRange seen{k * tokens, (k + 1) * tokens};
            const bool works = seen.begin < (q + 1) * tokens;
            svg.rectangle({left + cell * static_cast<double>(k), y, cell, cell},
                          works ? fill(colour_of_tp(owner[q]), k == q ? "0.45" : "0.85") : fill(shade));
        }
    }
    for (std::size_t rank = 0; rank < cp; ++rank) {
        const double y = top + 18 + 26 * static_cast<double>(rank);
        svg.rectangle({350, y - 12, 14, 14}, fill(colour_of_tp(rank), "0.85"));
        svg.text(372, y, "rank " + text_of(rank) + ": " + text_of(pairs[rank]) + " pairs of tokens", {12, ink});
    }
    svg.text(350, top + 140, "Pale: a chunk with itself, half of it.", {12, grey});
    return svg.finish(600, 290, "Chunks of a causal sequence over cp");
}

struct Up : sk::Param<"up", float, 8, 4>, sk::tp::Split<0> {};
struct Down : sk::Param<"down", float, 4, 8>, sk::tp::Split<1> {};

/// A column-parallel and a row-parallel weight on two ranks of tp, as their containers say.
std::string pair_of_layers() {
    std::array<std::vector<sk::ShardInfo>, 2> held;
    sk::threads::run(sk::DeviceMesh<1, 2>{}, [&](auto& rank) {
        sk::Sharded<sk::Params<Up, Down>, sk::NoShard> pair{rank, "mlp"};
        held[rank.rank()] = pair.shards();
    });
    Svg svg;
    constexpr double unit = 17;
    svg.text(margin, 24, "A column-parallel and a row-parallel layer over tp = 2", {13, ink, "start", true});
    const auto place = [](const std::string& parameter) { return parameter == "up" ? 150.0 : 320.0; };
    for (std::size_t tp = 0; tp < held.size(); ++tp) {
        for (const sk::ShardInfo& info : held[tp]) {
            const double x = place(info.parameter), y = 70;
            for (const sk::layout::Box& box : info.boxes) {
                svg.rectangle(
                    {x + unit * static_cast<double>(box.offsets[1]), y + unit * static_cast<double>(box.offsets[0]),
                     unit * static_cast<double>(box.extents[1]), unit * static_cast<double>(box.extents[0])},
                    fill(colour_of_tp(tp), "0.85"));
            }
            if (tp == 0) { svg.text(x, y - 10, info.parameter + " " + info.shape.describe(), {12, ink}); }
        }
        const double y = 80 + 22 * static_cast<double>(tp);
        svg.rectangle({490, y - 12, 14, 14}, fill(colour_of_tp(tp), "0.85"));
        svg.text(512, y, "tp " + text_of(tp), {12, ink});
    }
    svg.text(margin, 110, "all tokens on", {12, ink});
    svg.text(margin, 126, "both ranks", {12, ink});
    svg.text(232, 110, "no commu-", {12, ink});
    svg.text(232, 126, "nication", {12, ink});
    svg.text(320, 160, "then a sum over tp", {12, ink});
    svg.text(margin, 238, "Each rank computes half of the hidden features with its rows of up, and with its columns",
             {12, grey});
    svg.text(margin, 254, "of down an addend of every output.", {12, grey});
    return svg.finish(600, 270, "A pair of split layers");
}

}  // namespace

int main(int count, char** arguments) {
    try {
        if (count != 2) { throw std::invalid_argument("expected a folder: concepts FOLDER"); }
        struct Picture {
            const char* name;
            std::string (*draw)();
        };
        constexpr std::array<Picture, 6> pictures{{{"layout", layout},
                                                   {"hybrid_shard", hybrid},
                                                   {"memory", memory},
                                                   {"causal_chunks", chunks},
                                                   {"split_layers", pair_of_layers},
                                                   {"full_shard_step", draw_step}}};
        for (const Picture& picture : pictures) {
            const std::string name = std::string(arguments[1]) + "/" + picture.name + ".svg";
            std::ofstream file(name, std::ios::binary);
            file << picture.draw();
            if (!file.flush()) { throw std::runtime_error(name + " cannot be written"); }
        }
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "concepts: error: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
