#include "evaluator/kernels/attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "evaluator/kernels/many_rows.h"
#include "evaluator/kernels/panel_attention.h"
#include "evaluator/kernels/parallel.h"
#include "evaluator/kernels/slot_attention.h"
#include "evaluator/kernels/tile_attention.h"
#include "evaluator/kernels/tile_unit.h"

namespace evalcar::kernels {
namespace {

// Products for one thread, at least: below, waking another costs more than it brings.
constexpr std::int64_t kGrain = std::int64_t{1} << 22;
// The same of a row's, which waits for memory: 1.4 ns each were measured.
constexpr std::int64_t kSlotGrain = std::int64_t{1} << 14;
// As many queries go over the same packed keys, at least, where there are threads for fewer: to
// pack a key takes as long as some ten queries over it.
constexpr std::int64_t kLeastQueries = 256;
constexpr std::int64_t kTasksOfThread = 4;

/// Queries [first, first + count) of one key head.
struct Task {
  HeadAttention heads;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

HeadAttention heads_of(const AttentionRows& rows, std::int64_t kv_head) {
  const std::int64_t group = rows.q.size(1) / rows.k.size(1);
  const auto from = [](const at::Tensor& x, std::int64_t head) {
    return x.const_data_ptr<float>() + head * x.stride(1);
  };
  return {.q = from(rows.q, kv_head * group),
          .q_row = rows.q.stride(0),
          .q_head = rows.q.stride(1),
          .rows = rows.q.size(0),
          .group = group,
          .k = from(rows.k, kv_head),
          .k_row = rows.k.stride(0),
          .v = from(rows.v, kv_head),
          .v_row = rows.v.stride(0),
          .keys = rows.k.size(0),
          .dim = rows.q.size(2),
          .seen = rows.seen.empty() ? nullptr : rows.seen.data(),
          .out = rows.out.mutable_data_ptr<float>() + kv_head * group * rows.out.stride(1),
          .out_row = rows.out.stride(0),
          .out_head = rows.out.stride(1)};
}

/// Of as many parts as there have to be, in whole blocks. `most` is at least a block.
std::int64_t even_part(std::int64_t queries, std::int64_t most) {
  most = most / kQueryBlock * kQueryBlock;
  const std::int64_t parts = std::max<std::int64_t>(1, (queries + most - 1) / most);
  return std::max(kQueryBlock,
                  (queries + parts * kQueryBlock - 1) / (parts * kQueryBlock) * kQueryBlock);
}

std::int64_t queries_at_once(std::int64_t dim) {
  return has_tile_unit() ? TileAttender::queries_at_once(dim) : PanelAttender::queries_at_once(dim);
}

/// This thread's, for heads of one dimension.
HeadAttender& kept_attender(std::int64_t dim) {
  thread_local std::int64_t of = 0;
  thread_local std::unique_ptr<HeadAttender> kept;
  if (!kept || of != dim) {
    kept.reset();
    if (has_tile_unit()) {
      kept = std::make_unique<TileAttender>(dim);
    } else {
      kept = std::make_unique<PanelAttender>(dim);
    }
    of = dim;
  }
  return *kept;
}

}  // namespace

bool has_attention_kernel(const at::Tensor& like) {
  return like.is_cpu() && like.scalar_type() == at::kFloat && has_many_rows_kernel();
}

void attend(std::span<const AttentionRows> sequences) {
  std::vector<Task> tasks;
  std::int64_t products = 0, dim = 0, queries = 0;
  for (const AttentionRows& rows : sequences) queries += rows.q.size(0) * rows.q.size(1);
  const std::int64_t share =
      std::max(kLeastQueries, queries / (kTasksOfThread * at::get_num_threads()));
  for (const AttentionRows& rows : sequences) {
    dim = rows.q.size(2);
    const std::int64_t most = std::min(share, queries_at_once(dim));
    for (std::int64_t head = 0; head < rows.k.size(1); ++head) {
      const HeadAttention heads = heads_of(rows, head);
      products += heads.queries() * heads.keys * dim;
      const std::int64_t at_once = even_part(heads.queries(), most);
      for (std::int64_t first = 0; first < heads.queries(); first += at_once)
        tasks.push_back({heads, first, std::min(at_once, heads.queries() - first)});
    }
  }
  if (products == 0) return;
  const auto all = static_cast<std::int64_t>(tasks.size());
  in_parallel(all, all * kGrain / products, [&](std::int64_t first, std::int64_t count) {
    HeadAttender& attender = kept_attender(dim);
    for (std::int64_t i = first; i < first + count; ++i) {
      const Task& task = tasks[static_cast<std::size_t>(i)];
      attender.attend(task.heads, task.first, task.count);
    }
  });
}

at::Tensor attend_slots(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                        std::span<const SeenKeys> seen) {
  const at::Tensor rows = q.contiguous();
  const at::Tensor out = at::empty_like(rows);
  const SlotAttention all{.q = rows.const_data_ptr<float>(),
                          .heads = q.size(1),
                          .kv_heads = keys.size(2),
                          .dim = q.size(2),
                          .k = keys.const_data_ptr<float>(),
                          .v = values.const_data_ptr<float>(),
                          .slot_stride = keys.stride(0),
                          .position_stride = keys.stride(1),
                          .seen = seen,
                          .out = out.mutable_data_ptr<float>()};
  std::int64_t products = 0;
  for (const SeenKeys& each : seen) products += (each.end - each.begin) * all.heads * all.dim;
  if (products == 0) return out;
  in_parallel(tasks_of(all), std::max<std::int64_t>(1, tasks_of(all) * kSlotGrain / products),
              [&](std::int64_t first, std::int64_t count) { attend_slots(all, first, count); });
  return out;
}

}  // namespace evalcar::kernels
