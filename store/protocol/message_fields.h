// The fields of each message, listed once: whoever writes them and whoever reads them are two
// visitors (message_json.h). For messages.cpp alone.
#pragma once

#include "store/protocol/messages.h"

namespace evalcar::protocol {

template <typename V>
void visit(V& v, Hello& m) {
  v("protocol", m.protocol), v("version", m.version), v("device", m.device),
      v("device_name", m.device_name);
  v("torch_version", m.torch_version), v("warning", m.warning);
}
template <typename V>
void visit(V& v, Load& m) {
  v("id", m.id), v("dir", m.dir), v("weights", m.weights), v("dtype", m.dtype),
      v("base_model", m.base_model);
  v.optional("settings", m.settings);
}
template <typename V>
void visit(V& v, Prefetch& m) {
  v("dir", m.dir), v("weights", m.weights), v("dtype", m.dtype), v("base_model", m.base_model);
}
template <typename V>
void visit(V& v, Loaded& m) {
  v("id", m.id), v("weights_sha256", m.weights_sha256), v("architecture", m.architecture),
      v("dtype", m.dtype);
  v("tensors", m.tensors), v("bytes", m.bytes), v("seconds", m.seconds);
  v.optional("prefetched", m.prefetched);
}
template <typename V>
void visit(V& v, EvaluationSettings& m) {
  v("tasks", m.tasks), v("data_dir", m.data_dir), v("tasks_dir", m.tasks_dir), v("limit", m.limit);
  v("offset", m.offset), v("batch_size", m.batch_size), v("max_new_tokens", m.max_new_tokens);
  v("max_pixels", m.max_pixels), v("min_pixels", m.min_pixels),
      v("attn_implementation", m.attn_implementation);
  v("compat", m.compat), v("gen_kwargs", m.gen_kwargs), v("num_fewshot", m.num_fewshot),
      v("seed", m.seed);
  v("bootstrap_iters", m.bootstrap_iters);
  v.unless_zero("max_pixels_set", m.max_pixels_set);
  v.unless_zero("min_pixels_set", m.min_pixels_set);
  v.unless_zero("average_last", m.average_last);
  v.unless_zero("requested", m.requested);
}
template <typename V>
void visit(V& v, Answered& m) {
  v("id", m.id), v("task", m.task), v("doc_id", m.doc_id), v("text", m.text),
      v("output_tokens", m.output_tokens);
  v("fingerprint", m.fingerprint);
  v.optional("cut_off", m.cut_off);
}
template <typename V>
void visit(V& v, Evaluate& m) {
  v("id", m.id), v("settings", m.settings);
  v.optional("measured", m.measured), v.optional("interim_at", m.interim_at),
      v.optional("series", m.series);
}
template <typename V>
void visit(V& v, Cancel& m) {
  v("id", m.id);
}
template <typename V>
void visit(V&, Bye&) {}
template <typename V>
void visit(V& v, Progress& m) {
  v("id", m.id), v("stage", m.stage), v("task", m.task), v("done", m.done), v("total", m.total);
  v("tick", m.tick);
}
template <typename V>
void visit(V& v, TaskFingerprint& m) {
  v("task", m.task), v("sha256", m.sha256);
}
template <typename V>
void visit(V& v, Prepared& m) {
  v("id", m.id), v("tasks", m.tasks);
}
template <typename V>
void visit(V& v, Sample& m) {
  v("id", m.id), v("task", m.task), v("doc_id", m.doc_id), v("text", m.text),
      v("output_tokens", m.output_tokens);
  v("fingerprint", m.fingerprint);
  v.optional("cut_off", m.cut_off);
}
template <typename V>
void visit(V& v, Scored& m) {
  v("id", m.id), v("task", m.task), v("doc_id", m.doc_id), v("line", m.line);
  v("fingerprint", m.fingerprint);
  v.unless_empty("pictures", m.pictures);
}
template <typename V>
void visit(V& v, Metric& m) {
  v("name", m.name), v("filter", m.filter), v("value", m.value), v("stderr", m.stderr_value);
  v("stderr_source", m.stderr_source), v("missing", m.missing),
      v("higher_is_better", m.higher_is_better);
}
template <typename V>
void visit(V& v, TaskResult& m) {
  v("task", m.task), v("version", m.version), v("alias", m.alias), v("num_fewshot", m.num_fewshot),
      v("n", m.n);
  v("fingerprint", m.fingerprint);
  v("n_original", m.n_original), v("n_effective", m.n_effective), v("metrics", m.metrics),
      v("lmms_results", m.lmms_results);
  v("lmms_config", m.lmms_config), v("notes", m.notes), v("error", m.error);
  v.optional("error_kind", m.error_kind), v.optional("circumstances", m.circumstances);
  v.unless_empty("question", m.question);
}
template <typename V>
void visit(V& v, InterimScore& m) {
  v("task", m.task), v("fingerprint", m.fingerprint), v("n", m.n), v("documents", m.documents);
  v("metrics", m.metrics), v("notes", m.notes);
}
template <typename V>
void visit(V& v, Interim& m) {
  v("id", m.id), v("weights_sha256", m.weights_sha256), v("fraction", m.fraction);
  v("tasks", m.tasks), v("seconds", m.seconds);
}
template <typename V>
void visit(V& v, EvaluationResult& m) {
  v("id", m.id), v("weights_sha256", m.weights_sha256), v("tasks", m.tasks),
      v("seconds", m.seconds);
  v("attn_implementation", m.attn_implementation);
  v.optional("draft_tokens", m.draft_tokens),
      v.optional("draft_tokens_taken", m.draft_tokens_taken);
}
template <typename V>
void visit(V& v, JobError& m) {
  v("id", m.id), v("kind", m.kind), v("stage", m.stage), v("message", m.message),
      v("retryable", m.retryable);
  v("fatal", m.fatal);
}

template <typename T>
constexpr const char* type_name();
template <>
constexpr const char* type_name<Hello>() {
  return "hello";
}
template <>
constexpr const char* type_name<Load>() {
  return "load";
}
template <>
constexpr const char* type_name<Prefetch>() {
  return "prefetch";
}
template <>
constexpr const char* type_name<Loaded>() {
  return "loaded";
}
template <>
constexpr const char* type_name<Answered>() {
  return "answered";
}
template <>
constexpr const char* type_name<Evaluate>() {
  return "evaluate";
}
template <>
constexpr const char* type_name<Cancel>() {
  return "cancel";
}
template <>
constexpr const char* type_name<Bye>() {
  return "bye";
}
template <>
constexpr const char* type_name<Progress>() {
  return "progress";
}
template <>
constexpr const char* type_name<Prepared>() {
  return "prepared";
}
template <>
constexpr const char* type_name<Sample>() {
  return "sample";
}
template <>
constexpr const char* type_name<Scored>() {
  return "scored";
}
template <>
constexpr const char* type_name<Interim>() {
  return "interim";
}
template <>
constexpr const char* type_name<EvaluationResult>() {
  return "result";
}
template <>
constexpr const char* type_name<JobError>() {
  return "error";
}

}  // namespace evalcar::protocol
