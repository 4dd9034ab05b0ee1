// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <shardkit/sharded/group.hpp>

// Defines the longer members of Group that use its buffers.

namespace shardkit::detail SHARDKIT_BUILD {

template <class Engine>
Group<Engine>::Group(Context<Engine>& context, PlacedGroup<Engine>&& placed, const ElementTable<Engine>& elements,
                     const AdoptedElements& adopted)
    : context_(context),
      geometry_(std::move(placed.group)),
      layout_(placed.layout),
      comms_(placed.communicators),
      statements_(context.world().size() > 1, book_of(context.world()),
                  subject_of(context.world(), concat("'", geometry_.path, "'")), geometry_,
                  replicas(geometry_, comms_)),
      step_(geometry_.table),
      elements_(&elements),
      parameters_(context, geometry_, elements, comms_, statements_, step_.group(), adopted.parameters),
      gradients_(context, geometry_, elements, comms_, statements_, step_.group(), adopted.gradients) {
    list_segments();
    if (statements_.compares_values() && !adopted.parameters.empty()) {
        statements_.before_next([this] { digest_adopted(); });
    }
    Access::living(context).push_back(&geometry_.path);
}

template <class Engine>
Group<Engine>::Group(Context<Engine>& context, PlacedGroup<Engine>&& placed, const ElementTable<Engine>& elements,
                     const AdoptedElements& adopted, SourceLocation where)
    : Group(context, std::move(placed), elements, adopted) {
    prepare_reductions(geometry_, comms_, where);
    if (!adopted.parameters.empty()) {
        const auto parameters = adopted.parameters.bytes();
        adopted_ = Owned<AdoptedRanges>(new AdoptedRanges(path(), parameters, adopted.gradients.bytes(), where));
    }
}

template <class Engine>
void Group<Engine>::list_segments() {
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

template <class Engine>
Group<Engine>::~Group() {
    if (parameters_.windows() > 0) {
        end_program("'", path(), "' ended or was assigned to while ", parameters_.windows(),
                    " window(s) of it are open; the last one was opened at ", parameters_.opened().file, ":",
                    parameters_.opened().line);
    }
    if (directed_.any() != nullptr) {
        end_program("'", path(), "' ended or was assigned to while a schedule of its model is followed");
    }
    if (step_.busy()) {
        end_program("'", path(), "' ended or was assigned to while an accumulation or gradients over it live on");
    }
    if (reader_ != nullptr) {
        end_program("'", path(), "' ended or was assigned to while a save of it is pending: commit it before");
    }
    // Searched from the end: groups mostly end in reverse order.
    Access::living(context_).erase_if([this](const std::string* other) { return other == &geometry_.path; });
    context_.settle();
}

template <class Engine>
void Group<Engine>::take_gradients(SourceLocation where, std::string_view verb, Writes writes) {
    directed_.expect(Act::zero, where, verb);
    if (step_.reduced() && has_all_microbatches()) {
        throw_usage_error(where, "'", path(), "': ", verb,
                          "() after the last microbatch was reduced: ", microbatches(),
                          " microbatch(es) of this accumulation were added; say how many there ",
                          "are, as Accumulation{model, microbatches}");
    }
    step_.require_release(path(), verb, where);
    step_.hand_out(path(), verb, where);
    try {
        directed_.before(Act::zero, where);
        gradients_.open(writes == Writes::backward, where);
        directed_.after(Act::zero, where);
    } catch (...) {
        step_.take_back();
        throw;
    }
}

template <class Engine>
void Group<Engine>::add_gradients(SourceLocation where, std::string_view verb) {
    ++gradient_generation_;
    try {
        directed_.expect(Act::add, where, verb);
        step_.check_add(path(), where);
        if constexpr (checked) { gradients_.require_overwritten(where); }
        directed_.before(Act::add, where);
    } catch (...) {
        step_.take_back();
        gradients_.discard();
        throw;
    }
    gradients_.add(step_.add());
    if (!directed_.led()) { gradients_.reduce_due(where); }
    directed_.after(Act::add, where);
}

template <class Engine>
void Group<Engine>::add_norms(const double* scale, std::span<PartialNorms> norms, PartialNorms* lanes) {
    const std::size_t origin = geometry_.range(geometry_.table.reduced).begin;
    for (const bool copies : {false, true}) {
        std::size_t p = 0;
        for (const IndexRange segment : copies ? copied_segments_ : counted_segments_) {
            while (segment.begin + origin >= geometry_.parameters[p].range.end) { ++p; }
            elements_->add_norms(context_.compute_stream(),
                                 gradients_.reduced().subspan(segment.begin, segment.size()), scale, lanes, &norms[p],
                                 copies);
        }
    }
}

template <class Engine>
std::vector<ShardInfo> Group<Engine>::shards() {
    std::vector<ShardInfo> list;
    const StoredElements resting = parameters_.resting();
    if (geometry_.sizes.codes.gathered) {
        // Codes are no numbers without their scales, and follow from the masters.
    } else if (parameters_.rests_with_copies()) {
        parameters_.wait();  // a gather may still write the copies
        // One piece at a time: replica 0 of a piece is its owner's, as only the owner updates it.
        const Extent extent = parameters_.resting_extent();
        for (std::size_t s = 0; s < geometry_.shards; ++s) {
            if (extent == Extent::shard && s != geometry_.shard_index) { continue; }
            for (std::size_t p = 0; p < geometry_.pieces(); ++p) {
                const PiecePlace place{s, p};
                const bool current = place == geometry_.place() || parameters_.copies_are_current();
                list_shards(geometry_, "parameter", extent, resting, parameters_.resting_range().begin,
                            HeldRange{geometry_.range_of(place), place, current}, list);
            }
        }
    } else {
        list_shards(geometry_, "parameter", parameters_.resting_extent(), resting, parameters_.resting_range().begin,
                    list);
    }
    if (geometry_.keeps_master()) {
        list_shards(geometry_, "master", geometry_.table.updated, parameters_.master(), geometry_.updated.begin,
                    list);
    }
    return list;
}

// Says which memory each row of a group's placement table stands for. A new role needs its memory here, which the
// compiler says; a new row of a known role needs nothing.
template <class Engine>
List<HeldBuffer> Group<Engine>::held() {
    List<HeldBuffer> all;
    const auto add = [&](Role role, const StoredElements& values, IndexRange flat, Extent extent) {
        all.push_back({role, {}, values.data(), size_of(values.type()), flat, extent});
    };
    const auto add_row = [&](const BufferRow& row, const StoredElements& values) {
        add(row.role, values, geometry_.range(row.extent), row.extent);
    };
    const Role sums = geometry_.table.find(Role::reduced) != nullptr ? Role::reduced : Role::gradients;
    const bool codes = geometry_.sizes.codes.gathered;
    parameters_.wait();
    for (const BufferRow& row : geometry_.table.buffers()) {
        switch (row.role) {
            case Role::parameters:
                if (codes) { break; }  // follow from the masters
                if (parameters_.rests_with_copies() && !parameters_.copies_are_current()) {
                    // The next gather replaces what other ranks have updated.
                    add(row.role, parameters_.gather_source(), geometry_.updated, geometry_.table.updated);
                } else {
                    add_row(row, parameters_.resting());
                }
                break;
            case Role::gathered:
                if (!codes && row.held == Held::always && parameters_.copies_are_current()) {
                    add_row(row, parameters_.full());
                }
                break;
            case Role::secondary:
                if (parameters_.shard_is_current()) { add_row(row, parameters_.secondary()); }
                break;
            case Role::master:
                if (geometry_.splits_master()) {
                    add_row(row, parameters_.halves());
                } else {
                    add_row(row, parameters_.master());
                }
                break;
            case Role::gradients:
            case Role::reduced:
                if (row.role == sums && step_.reduced() && !step_.updated()) {
                    gradients_.wait();
                    const Extent extent = geometry_.table.reduced;
                    add(row.role, gradients_.reduced(), geometry_.range(extent), extent);
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

template <class Engine>
void Group<Engine>::write(std::size_t parameter, const TensorValueSource& values, SourceLocation where) {
    begin_write(where);
    torn_.begin(parameter, TornValues::parameters, "load", where);
    ValuesDigest digest(geometry_.parameters[parameter].range.size());
    for_each_written(statements_.compares_values() ? &digest : nullptr,
                     [&](WrittenAs how, const StoredElements& target, std::size_t origin, ValuesDigest* to) {
                         elements_->write(context_, geometry_.parameters[parameter], how, target, origin, values, to);
                     });
    settle_frozen(parameter);
    parameters_.end_write();
    torn_.end(parameter, TornValues::parameters);
    if (statements_.compares_values()) { statements_.set_values(parameter, digest); }
}

template <class Engine>
void Group<Engine>::settle_frozen(std::size_t parameter) {
    const PlacedParameter& frozen = geometry_.parameters[parameter];
    const IndexRange range = intersect(frozen.range, geometry_.updated);
    const bool split = geometry_.splits_master();
    if (!frozen.frozen || range.empty() || elements_->to_masters == nullptr) { return; }
    if (!geometry_.keeps_master() && !split) { return; }
    const auto its = [&](const StoredElements& all) {
        return all.subspan(range.begin - geometry_.updated.begin, range.size());
    };
    const auto stream = context_.compute_stream();
    const StoredElements elements = its(parameters_.gather_source());
    if (!split) { return elements_->to_masters(stream, elements, its(parameters_.master())); }
    const auto joined = group_buffer<float>(context_, path(), "frozen parameters", range.size());
    elements_->to_masters(stream, elements, joined.span());
    elements_->split(stream, joined.span(), elements, its(parameters_.halves()));
    settle(stream);
}

template <class Engine>
void Group<Engine>::digest_reduced(StatedStep& stated) {
    if constexpr (host_reads<Engine>) {
        if (context_.world_size() == 1 || !trainable() || geometry_.table.reduced != Extent::full) { return; }
        await_host_memory(context_);
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

template <class Engine>
void Group<Engine>::digest_adopted() {
    if constexpr (host_reads<Engine>) {
        await_host_memory(context_);
        for (std::size_t p = 0; p < geometry_.parameters.size(); ++p) {
            const IndexRange range = geometry_.parameters[p].range;
            ValuesDigest digest(range.size());
            elements_->digest_gathered(digest, parameters_.full().subspan(range.begin, range.size()));
            statements_.set_values(p, digest);
        }
    }
}

}  // namespace shardkit::detail SHARDKIT_BUILD
