// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <shardkit/checkpoint/convert_elements.hpp>
#include <shardkit/checkpoint/load_run.hpp>
#include <shardkit/checkpoint/read_tensor.hpp>
#include <shardkit/checkpoint/same_on_all_ranks.hpp>
#include <shardkit/checkpoint/value_memory.hpp>
#include <shardkit/checkpoint/values_by_kind.hpp>
#include <shardkit/checkpoint/write_jobs.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/reshard/reshard_wire.hpp>
#include <shardkit/reshard/transfers.hpp>

namespace shardkit::detail {

/// Moves the elements of a plan on one rank. An error of this rank is kept, and the other messages go on, so that no
/// rank waits for one that has given up; an error of the engine is thrown.
class MoveValues {
  public:
    /// @param values  of the source, by number, @param load  of the destination; null without one
    MoveValues(ReshardWire& wire, const Transfers& transfers, const Boxes& from,
               const List<const SavedValues*>& values, LoadRun* load, SourceLocation where)
        : wire_(wire),
          transfers_(transfers),
          from_(from),
          values_(values),
          load_(load),
          reads_(where),
          writes_(where),
          where_(where) {}

    /// Returns the bytes of this rank's largest message that is staged, on its way in or out.
    std::size_t staged_bytes() const {
        std::size_t most = 0;
        for (const TransferStage* const stage : {&transfers_.taken, &transfers_.passed}) {
            const auto count = [&](const List<TransferredPiece>& pieces, const auto& direct) {
                for_each_message(pieces.span(), transfers_.limit, [&](Pieces message) {
                    if (!direct(message)) { most = std::max(most, bytes_of(message)); }
                });
            };
            for (std::size_t peer = 0; peer < transfers_.ranks; ++peer) {
                count(stage->sent[peer], [&](Pieces message) { return is_sent_directly(message); });
                count(stage->received[peer], [&](Pieces message) { return is_received_directly(message); });
            }
        }
        return most;
    }
    /// @param staging  the most that any rank stages
    /// Order: collective over the ranks of both sides. @returns this rank's error, if any
    Failure run(std::size_t rank, std::size_t staging) {
        if (staging > 0) { wire_.stage(staging); }
        attempt_once([&] {
            clear_rest();
            for (const TransferredPiece& piece : transfers_.taken.received[rank]) { keep(piece); }
        });
        exchange(transfers_.taken, rank);
        attempt_once([&] { writes_.finish(); });
        exchange(transfers_.passed, rank);
        attempt_once([&] {
            writes_.finish();
            if (load_ != nullptr) { load_->take_copies(); }
        });
        return failure_;
    }

  private:
    using Pieces = std::span<const TransferredPiece>;

    void exchange(const TransferStage& stage, std::size_t rank) {
        const auto messages = [&](const List<List<TransferredPiece>>& pieces, std::size_t peer) {
            List<Pieces> all;
            if (peer == TransferStage::nobody || peer == rank) { return all; }
            for_each_message(pieces[peer].span(), transfers_.limit, [&](Pieces message) { all.push_back(message); });
            return all;
        };
        for (std::size_t round = 0; round < stage.rounds(); ++round) {
            const std::size_t to = stage.to(rank, round);
            const std::size_t from = stage.from(rank, round);
            const List<Pieces> out = messages(stage.sent, to);
            const List<Pieces> in = messages(stage.received, from);
            for (std::size_t m = 0; m < std::max(out.size(), in.size()); ++m) {
                ReshardWire::Message sent{nullptr, 0, to, true};
                ReshardWire::Message received{nullptr, 0, from, true};
                if (m < out.size()) { pack(out[m], sent); }
                if (m < in.size()) { place(in[m], received); }
                wire_.exchange(sent, received, where_);
                if (m < in.size() && received.staged) {
                    attempt_once([&] { unpack(in[m], received.at); });
                }
            }
        }
        wire_.finish();
    }
    /// Does this rank's own work until something of it fails.
    template <class F>
    void attempt_once(const F& work) {
        if (!failure_.happened()) { failure_ = attempt(work); }
    }
    /// Whether a piece comes from another rank's destination, in the elements of that.
    static bool is_passed(const TransferredPiece& piece) noexcept { return piece.tensor == Transfers::none; }
    /// Returns the values that a piece is sent from: the source's, or the destination's that have taken it.
    const SavedValues& source(const TransferredPiece& piece) const noexcept {
        return is_passed(piece) ? values_of(target(piece)) : *values_[from_.tensors[piece.tensor].values];
    }
    const LoadRun::Target& target(const TransferredPiece& piece) const noexcept {
        return load_->targets()[piece.target];
    }
    const SavedValues& values_of(const LoadRun::Target& target) const noexcept {
        return *load_->group(target).values[target.tensor.values];
    }
    static std::size_t bytes_of(Pieces pieces) noexcept {
        std::size_t bytes = 0;
        for (const TransferredPiece& piece : pieces) { bytes += piece.bytes; }
        return bytes;
    }
    /// Whether the engine can send from, and receive to, where they lie. Finding that place cannot fail.
    bool is_engines(const SavedValues& values) const noexcept {
        return values.on_host == wire_.on_host() && !values.is_copy();
    }
    static bool alone(Pieces pieces) noexcept { return pieces.size() == 1 && pieces.front().contiguous(); }
    bool is_sent_directly(Pieces pieces) const noexcept {
        return alone(pieces) && is_engines(source(pieces.front()));
    }
    bool is_received_directly(Pieces pieces) const noexcept {
        const LoadRun::Target& first = target(pieces.front());
        const bool once = transfers_.next_alike[pieces.front().target] == Transfers::none;
        return alone(pieces) && is_engines(values_of(first)) &&
               (is_passed(pieces.front()) || (once && is_same(first)));
    }

    // What is not staged has no room in the staging memory, also after an error of this rank.
    void pack(Pieces pieces, ReshardWire::Message& message) {
        const TransferredPiece& first = pieces.front();
        message.bytes = bytes_of(pieces);
        message.staged = !is_sent_directly(pieces);
        message.at = message.staged ? wire_.staging_to_send() : source(first).memory(first.from_flat);
        if (!message.staged) { return; }
        attempt_once([&] {
            std::byte* to = message.at;
            for (const TransferredPiece& piece : pieces) {
                reads_.read(source(piece), piece.from_flat, piece.from_stride, piece.count, to);
                to += piece.bytes;
            }
        });
    }
    /// Chooses where a message is received.
    void place(Pieces pieces, ReshardWire::Message& message) {
        const TransferredPiece& first = pieces.front();
        message.bytes = bytes_of(pieces);
        message.staged = !is_received_directly(pieces);
        message.at = message.staged ? wire_.staging_to_receive() : values_of(target(first)).memory(first.to_flat);
    }
    bool is_same(const LoadRun::Target& target) const noexcept {
        return same_elements(target.from->tensor.type, values_of(target).type);
    }
    void unpack(Pieces pieces, const std::byte* from) {
        for (const TransferredPiece& piece : pieces) {
            write(piece, from);
            from += piece.bytes;
        }
    }
    /// Writes a piece that lies in the host's memory, as its elements are stored, to each target that takes it.
    /// @throws FileError where a finite element would become infinite
    void write(const TransferredPiece& piece, const std::byte* from) {
        if (is_passed(piece)) {
            write(target(piece), piece, dtype_of(values_of(target(piece)).type), from);
            return;
        }
        for (std::size_t t = piece.target; t != Transfers::none; t = transfers_.next_alike[t]) {
            const LoadRun::Target& taking = load_->targets()[t];
            write(taking, piece, taking.from->tensor.type, from);
        }
    }
    void write(const LoadRun::Target& target, const TransferredPiece& piece, safetensors::DType stored,
               const std::byte* from) {
        const SavedValues& values = values_of(target);
        // What lies between the elements is written back: nothing may be on its way there.
        if (!values.on_host && piece.to_stride > 1) { wire_.finish(); }
        const std::size_t size = piece.bytes / piece.count;
        const ElementConverter convert(stored, values.type);
        writes_.write(values, piece.to_flat, piece.to_stride, piece.count,
                      [&](std::size_t first, std::size_t n, std::byte* to) {
                          if (convert(from + first * size, to, n) == n) { return; }
                          throw FileError(load_->files().path(*target.from),
                                          out_of_range(target.tensor.name, values.type), where_);
                      });
    }
    /// Copies a piece that this rank has itself.
    void keep(const TransferredPiece& piece) {
        const SavedValues& values = source(piece);
        if (values.on_host && piece.from_stride == 1) {
            write(piece, values.memory(piece.from_flat));
            return;
        }
        kept_.resize(piece.bytes);
        reads_.read(values, piece.from_flat, piece.from_stride, piece.count, kept_.data());
        write(piece, kept_.data());
    }
    /// Makes the elements zero that a target needs and the source lacks, as a load does.
    void clear_rest() {
        if (load_ == nullptr) { return; }
        for (const LoadRun::Target& each : load_->targets()) {
            if (each.rest != TensorReader::Rest::zero) { continue; }
            const SavedValues& values = values_of(each);
            const IndexRange held =
                intersect(values.geometry().parameters[each.tensor.parameter].range, values.loaded);
            const std::size_t size = size_of(values.type);
            writes_.write(values, held.begin, 1, held.size(),
                          [&](std::size_t, std::size_t n, std::byte* to) { std::memset(to, 0, n * size); });
        }
    }

    ReshardWire& wire_;
    const Transfers& transfers_;
    const Boxes& from_;
    const List<const SavedValues*>& values_;
    LoadRun* load_;
    ValueMemory reads_;
    ValueMemory writes_;
    SourceLocation where_;
    Failure failure_;
    std::vector<std::byte> kept_;
};

}  // namespace shardkit::detail
