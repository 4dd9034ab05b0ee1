// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <shardkit/sharded/group.hpp>

// Defines the longer members of Group that use its buffers.

namespace shardkit::detail SHARDKIT_BUILD {

inline Group::Group(Rank& rank, PlacedGroup&& placed, const ElementTable& elements, const AdoptedElements& adopted)
    : rank_(rank),
      geometry_(std::move(placed.group)),
      layout_(placed.layout),
      comms_(placed.communicators),
      statements_(rank.world().size() > 1, book_of(rank.world()),
                  subject_of(rank.world(), concat("'", geometry_.path, "'")), geometry_, replicas(geometry_, comms_)),
      step_(geometry_.table),
      elements_(&elements),
      parameters_({&rank, &geometry_, &elements, &statements_, &step_.group(), comms_}, adopted.parameters),
      gradients_({&rank, &geometry_, &elements, &statements_, &step_.group(), comms_}, adopted.gradients) {
    list_segments();
    if (statements_.compares_values() && !adopted.parameters.empty()) {
        statements_.before_next([this] { digest_adopted(); });
    }
    RankResources::of(rank).living.push_back(&geometry_.path);
}

inline Group::Group(Rank& rank, PlacedGroup&& placed, const ElementTable& elements, const AdoptedElements& adopted,
                    SourceLocation where)
    : Group(rank, std::move(placed), elements, adopted) {
    prepare_reductions(geometry_, comms_, where);
    if (!adopted.parameters.empty()) {
        const auto parameters = adopted.parameters.bytes();
        adopted_ = Owned<AdoptedRanges>(new AdoptedRanges(path(), parameters, adopted.gradients.bytes(), where));
    }
}

inline void Group::list_segments() {
    const ElementSizes& sizes = geometry_.sizes;
    const std::size_t alignment =
        layout::alignment_for(std::min({sizes.gather, sizes.gradient, sizes.reduction, sizes.master}));
    // Where a rank has all gradients, its part is cut as in the library's own layout, however the parameters are
    // packed. So adopted memory gives the same bits as the library's own.
    const bool whole = geometry_.table.reduced == Extent::full;
    layout::FlatLayout cut(geometry_.shards, alignment);
    List<IndexRange> places;
    for (const PlacedParameter& p : geometry_.parameters) {
        places.push_back(whole ? cut.append(p.part.numel()) : p.range);
    }
    const IndexRange held = geometry_.range(geometry_.table.reduced);
    const IndexRange own = whole ? cut.shard(geometry_.shard_index) : held;
    const bool counts = geometry_.table.reduced == Extent::piece || geometry_.replica_index == 0;
    for (std::size_t p = 0; p < places.size(); ++p) {
        const IndexRange counted = intersect(places[p], own);
        const PlacedParameter& parameter = geometry_.parameters[p];
        if (counted.empty() || parameter.frozen || !counts) { continue; }
        const std::size_t begin = counted.begin - places[p].begin + parameter.range.begin - held.begin;
        const bool copied = geometry_.replica(p, Extent::piece) != 0;
        // Norms add up blocks that begin with a segment. Under slices they must be the same for every ep, though an
        // expert begins anywhere in a rank's part: no segment goes over an expert's end or a shard's.
        std::size_t most = counted.size();
        if (geometry_.experts && geometry_.policy.slices > 0) {
            const std::size_t expert = parameter.part.numel() / parameter.part.shape().extents[0];
            if (expert % alignment != 0) { most = std::gcd(expert, alignment); }
        }
        for (std::size_t at = 0; at < counted.size(); at += most) {
            const std::size_t end = at + std::min(most, counted.size() - at);
            (copied ? copied_segments_ : counted_segments_).push_back({begin + at, begin + end});
        }
    }
}

inline std::size_t Group::known_microbatches(std::size_t given, SourceLocation where) const {
    const std::size_t slices = geometry_.table.slices;
    if (slices == 0 || given == slices) { return given; }
    if (given == 0) { return slices; }
    throw_invalid_argument(where, "'", path(), "': ", given, " microbatches given, expected ", slices, ": ",
                           geometry_.policy.slices, " slices over ", geometry_.data_ranks(), " data-parallel ranks");
}

inline Group::~Group() {
    if (parameters_.windows() > 0) {
        end_program("'", path(), "' ended or was assigned to while ", parameters_.windows(),
                    " window(s) of it are open; the last one was opened at ", parameters_.opened().file, ":",
                    parameters_.opened().line);
    }
    if (observed_.any() != nullptr) {
        end_program("'", path(), "' ended or was assigned to while a schedule of its model is followed");
    }
    if (step_.busy()) {
        end_program("'", path(), "' ended or was assigned to while an accumulation or gradients over it live on");
    }
    if (reader_ != nullptr) {
        end_program("'", path(), "' ended or was assigned to while a save of it is pending: commit it before");
    }
    RankResources::of(rank_).remove(geometry_.path);
    rank_.settle();
}

inline void Group::take_gradients(SourceLocation where, std::string_view verb, Writes writes) {
    observed_.expect(Act::zero, where, verb);
    if (step_.reduced() && has_all_microbatches()) {
        throw_usage_error(where, "'", path(), "': ", verb,
                          "() after the last microbatch was reduced: ", microbatches(),
                          " microbatch(es) of this accumulation were added; say how many there ",
                          "are, as Accumulation{model, microbatches}");
    }
    step_.require_release(path(), verb, where);
    step_.hand_out(path(), verb, where);
    try {
        observed_.before(Act::zero, where);
        gradients_.open(writes == Writes::backward, where);
        observed_.after(Act::zero, where);
    } catch (...) {
        step_.take_back();
        throw;
    }
}

inline void Group::add_gradients(SourceLocation where, std::string_view verb) {
    ++gradient_generation_;
    try {
        observed_.expect(Act::add, where, verb);
        step_.check_add(path(), where);
        if constexpr (checked) { gradients_.require_overwritten(where); }
        observed_.before(Act::add, where);
    } catch (...) {
        step_.take_back();
        gradients_.discard();
        throw;
    }
    gradients_.add(step_.add());
    if (!observed_.led()) { gradients_.reduce_due(where); }
    observed_.after(Act::add, where);
}

inline void Group::add_norms(const double* scale, std::span<PartialNorms> norms, PartialNorms* lanes) {
    const std::size_t origin = geometry_.range(geometry_.table.reduced).begin;
    for (const bool copies : {false, true}) {
        std::size_t p = 0;
        for (const IndexRange segment : copies ? copied_segments_ : counted_segments_) {
            while (segment.begin + origin >= geometry_.parameters[p].range.end) { ++p; }
            elements_->add_norms(rank_.compute_stream(), gradients_.reduced().subspan(segment.begin, segment.size()),
                                 scale, lanes, &norms[p], copies);
        }
    }
}

inline std::vector<ShardInfo> Group::shards() {
    std::vector<ShardInfo> list;
    for (const HeldMemory& each : held()) {
        const bool master = each.role == Role::master && !geometry_.splits_master();
        if (each.role == Role::parameters || master) { list_shards(geometry_, each, list); }
    }
    return list;
}

// Says which memory each row of a group's placement table stands for. A new role needs its memory here, which the
// compiler says; a new row of a known role needs nothing.
inline List<HeldMemory> Group::held() {
    List<HeldMemory> all;
    const auto add = [&](Role role, const StoredElements& values, Extent extent) -> HeldMemory& {
        return all.push_back({role, {}, values, geometry_.range(extent), extent});
    };
    const Role sums = geometry_.table.find(Role::reduced) != nullptr ? Role::reduced : Role::gradients;
    const bool codes = geometry_.sizes.codes.gathered;
    using Copies = HeldMemory::Copies;
    const Copies copies = parameters_.copies_are_current() ? Copies::current : Copies::stale;
    parameters_.wait();
    for (const BufferRow& row : geometry_.table.buffers()) {
        switch (row.role) {
            case Role::parameters:
                if (codes) { break; }  // follow from the masters
                add(row.role, parameters_.resting(), row.extent).copies =
                    parameters_.rests_with_copies() ? copies : Copies::none;
                break;
            case Role::gathered:
                if (!codes && row.held == Held::always && copies == Copies::current) {
                    add(row.role, parameters_.full(), row.extent);
                }
                break;
            case Role::secondary:
                if (parameters_.shard_is_current()) { add(row.role, parameters_.secondary(), row.extent); }
                break;
            case Role::master:
                add(row.role, geometry_.splits_master() ? parameters_.halves() : parameters_.master(), row.extent);
                break;
            case Role::gradients:
            case Role::reduced:
                if (row.role == sums && step_.reduced() && !step_.updated()) {
                    gradients_.wait();
                    add(row.role, gradients_.reduced(), geometry_.table.reduced);
                }
                break;
            case Role::states:     // an optimizer's
            case Role::addend:     // of no use once it is added
            case Role::subtotals:  // of no use once all slices are added
                break;
        }
    }
    return all;
}

inline void Group::write(std::size_t parameter, const TensorValueSource& values, SourceLocation where) {
    begin_write(where);
    torn_.begin(parameter, TornValues::parameters, "load", where);
    write_each(parameter, [&](WrittenAs how, const StoredElements& target, std::size_t origin, ValuesDigest* digest) {
        elements_->write(rank_, geometry_.parameters[parameter], how, target, origin, values, digest);
    });
}

inline HostBuffer<float> Group::buffer_of_masters() const {
    return group_buffer<float>(rank_, path(), "joined master weights", geometry_.updated.size());
}
inline HostBuffer<float> Group::join_masters() const {
    auto joined = buffer_of_masters();
    elements_->join(rank_.compute_stream(), parameters_.gather_source(), parameters_.halves(), joined.span());
    return joined;
}
inline void Group::split_masters(const StoredElements& joined) {
    const auto stream = rank_.compute_stream();
    elements_->split(stream, joined, parameters_.gather_source(), parameters_.halves());
    stream.settle();
}

inline void Group::settle_frozen(std::size_t parameter) {
    const PlacedParameter& frozen = geometry_.parameters[parameter];
    const IndexRange range = intersect(frozen.range, geometry_.updated);
    const bool split = geometry_.splits_master();
    if (!frozen.frozen || range.empty() || elements_->to_masters == nullptr) { return; }
    if (!geometry_.keeps_master() && !split) { return; }
    const auto its = [&](const StoredElements& all) {
        return all.subspan(range.begin - geometry_.updated.begin, range.size());
    };
    const auto stream = rank_.compute_stream();
    const StoredElements elements = its(parameters_.gather_source());
    if (!split) { return elements_->to_masters(stream, elements, its(parameters_.master())); }
    const auto joined = group_buffer<float>(rank_, path(), "frozen parameters", range.size());
    elements_->to_masters(stream, elements, joined.span());
    elements_->split(stream, joined.span(), elements, its(parameters_.halves()));
    stream.settle();
}

inline void Group::digest_reduced(StatedStep& stated) {
    if (host_reads(rank_.compute_stream())) {
        if (rank_.world_size() == 1 || !trainable() || geometry_.table.reduced != Extent::full) { return; }
        await_host_memory(rank_);
        for (const PlacedParameter& parameter : geometry_.parameters) {
            if (parameter.frozen || !parameter.whole_everywhere()) { continue; }
            ValuesDigest digest(parameter.range.size());
            elements_->digest_sums(digest,
                                   gradients_.reduced().subspan(parameter.range.begin, parameter.range.size()));
            stated.assumed = statement_hash(stated.assumed, digest.hash());
            stated.assumed_sum += digest.sum();
        }
    }
}

inline void Group::digest_adopted() {
    if (host_reads(rank_.compute_stream())) {
        await_host_memory(rank_);
        for (std::size_t p = 0; p < geometry_.parameters.size(); ++p) {
            const IndexRange range = geometry_.parameters[p].range;
            ValuesDigest digest(range.size());
            elements_->digest_gathered(digest, parameters_.full().subspan(range.begin, range.size()));
            statements_.set_values(p, digest);
        }
    }
}

inline void Group::read_full(std::size_t parameter, bool wanted, const TensorValueTarget& values,
                             SourceLocation where) {
    if (wanted) { check_whole("read_full", parameter, values.size(), values.bytes(), where); }
    struct Window {
        Group& group;
        bool used;
        ~Window() { used ? group.close_window() : group.drop_window(); }
    };
    open_window(Gathers::when_stale, where);
    Window window{*this, false};
    use_window(where);
    window.used = true;
    const Stream stream = rank_.compute_stream();
    const IndexRange range = geometry_.parameters[parameter].range;
    const auto copy = [&](const StoredElements& elements) {
        const WholeTensor whole(rank_, comms_, geometry_, parameter, elements, stream, where);
        if (!wanted) { return; }
        // Types of a program's own that have one byte share their ElementType.
        const bool same = values.type() == elements.type() && (elements_->opaque || size_of(values.type()) > 1);
        same ? whole.copy(values.bytes().data()) : whole.copy(values, 1, elements_->widen_gathered);
    };
    const StoredElements elements = parameters_.full().subspan(range.begin, range.size());
    if (elements_->decode == nullptr) { return copy(elements); }
    const auto decoded = group_buffer<float>(rank_, path(), "decoded parameters", range.size());
    elements_->decode(stream, elements, parameters_.scales(parameter), decoded.span());
    copy(decoded.span());
    stream.settle();
}
inline void Group::read_full_gradient(std::size_t parameter, double scale, const TensorValueTarget& values,
                                      SourceLocation where) {
    require_gradients("read_full", where);
    check_whole("read_full", parameter, values.size(), values.bytes(), where);
    const Stream stream = rank_.reduction_stream();
    HostBuffer<std::uint8_t> gathered;
    const std::string what = concat("'", path(), "' reduced gradients");
    const StoredElements full =
        whole_group(rank_, comms_, geometry_, gradients_.reduced(), gathered, "gathered gradients", stream,
                    {where, subject_of(comms_.shards, what), statements_.in_call(Over::shards)});
    const IndexRange range = geometry_.parameters[parameter].range;
    WholeTensor(rank_, comms_, geometry_, parameter, full.subspan(range.begin, range.size()), stream, where)
        .copy(values, scale, elements_->widen_sums);
}
inline void Group::show_updated(bool to_write, ShownTo show, void* to) {
    const auto shown = [&](const StoredElements& elements) { show(to, elements.type(), elements.data()); };
    if (geometry_.keeps_master()) {
        shown(parameters_.master());
        if (to_write && elements_->to_gathered != nullptr) {
            elements_->to_gathered(rank_.compute_stream(), parameters_.master(), parameters_.gather_source());
        }
    } else if (geometry_.splits_master()) {
        const auto joined = join_masters();
        await_host_memory(rank_);
        shown(joined.span());
        if (to_write) { return split_masters(joined.span()); }
        rank_.compute_stream().settle();
    } else if (!geometry_.sizes.codes.gathered) {
        shown(parameters_.gather_source());
    }
}

}  // namespace shardkit::detail SHARDKIT_BUILD
